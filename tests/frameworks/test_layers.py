"""The time of layers: both frameworks compute the same operations. test_matrix.py has it in records and in the report."""

import time

import numpy as np
import pytest
import torch

from common import workloads
from common.config import Settings
from common.model import families
from common.model.operations import Activation, Pooling, Residual
from common.training import layers, step_breakdown
from common.training.layers import drawn_copies
from common.workloads import WORKLOADS
from frameworks import single
from frameworks.shared.pytorch import operations as of_pytorch
from launch.report.questions.layers import TOLERANCE
from tests.support.small_models import MODELS, random_batch

pytestmark = pytest.mark.usefixtures("frameworks")
tensorflow = None

NUM_SAMPLES = 2
SLOW_SECONDS = 0.2


def computed(operation, arrays):
    """The results of an operation in PyTorch and in TensorFlow, with the sums of their gradients by the operands that have one."""
    tf, of_tensorflow, unchanged = tensorflow.steps.tf, tensorflow.operations, tensorflow.models.layers.unchanged
    pairs = [*zip(operation.operands, arrays, strict=True)]
    tensors = [of_pytorch._tensor(operand, array, torch.device("cpu"), False) for operand, array in pairs]
    result = of_pytorch.FUNCTIONS[type(operation)](operation, *tensors)
    sums = [gradient.sum().item() for gradient in torch.autograd.grad((result**2).sum(), [t for t in tensors if t.requires_grad])]
    variables = [of_tensorflow._variable(operand, array, unchanged) for operand, array in pairs]
    with tf.GradientTape() as tape:
        theirs = of_tensorflow.FUNCTIONS[type(operation)](operation, unchanged, *map(tf.convert_to_tensor, variables))
        total = tf.reduce_sum(theirs**2)
    gradients = tape.gradient(total, [variable for variable in variables if variable.trainable])
    their_sums = [float(tf.reduce_sum(tf.convert_to_tensor(gradient))) for gradient in gradients]
    return (result.detach().numpy(), sums), (theirs.numpy(), their_sums)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_both_frameworks_compute_the_same_operations(model):
    for operation in dict.fromkeys(families.operations_of(model)):
        arrays, *_ = drawn_copies(operation, NUM_SAMPLES, Settings(precision="fp64"))
        # TensorFlow's pooling pads with 0, and nothing is less after a ReLU.
        arrays = [np.abs(array) for array in arrays] if isinstance(operation, Pooling) else arrays
        (ours, our_sums), (theirs, their_sums) = computed(operation, arrays)
        if ours.ndim == 4 and not isinstance(operation, (Activation, Residual)):
            # Images of PyTorch have their channels first.
            ours = ours.transpose(0, 2, 3, 1)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9, err_msg=str(operation))
        np.testing.assert_allclose(our_sums, their_sums, rtol=1e-8, atol=1e-8, err_msg=str(operation))


@pytest.mark.parametrize("workload", ["cnn", "transformer"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_the_passes_of_copies_run_in_every_precision_and_so_do_those_of_none(workload, precision, framework):
    device = [torch.device("cpu")] if framework == "pytorch" else []
    operations = of_pytorch if framework == "pytorch" else tensorflow.operations
    for operation in dict.fromkeys(families.operations_of(WORKLOADS[workload].model)):
        for copies in (drawn_copies(operation, NUM_SAMPLES, Settings(precision=precision)), []):
            passes = operations.passes(operation, copies, *device, precision)
            passes.forward()
            passes.forward_and_backward()


def test_a_slow_layer_is_found_in_its_row_and_the_rows_add_up_to_the_slow_step(monkeypatch):
    settings = workloads.resolve(Settings(device="cpu"), 1)
    trainer = single.Trainer(settings)
    batch = random_batch(WORKLOADS["cnn"].model, settings.batch_size, settings.precision)
    for name, number in {"NUM_WARMUPS": 1, "NUM_TURNS": 1, "TURN_SECONDS": 0.0, "MAX_COPIES": 1}.items():
        monkeypatch.setattr(layers, name, number)
    monkeypatch.setattr(step_breakdown, "COMMUNICATES", (True, False))
    before = layers.measure(trainer, settings, lambda: None)
    linear = torch.nn.functional.linear
    monkeypatch.setattr(torch.nn.functional, "linear", lambda *operands: time.sleep(SLOW_SECONDS) or linear(*operands))
    breakdown = step_breakdown.measure(trainer, [batch], step_breakdown.MIN_STEPS, 0)
    after = layers.measure(trainer, settings, lambda: None)
    slower = {kind: after[kind].forward_seconds - before[kind].forward_seconds for kind in after}
    assert slower.pop("dense") == pytest.approx(2 * SLOW_SECONDS, rel=0.1)
    assert max(slower.values()) < SLOW_SECONDS
    total = sum(of_kind.forward_seconds + of_kind.backward_seconds for of_kind in after.values())
    assert total == pytest.approx(breakdown.compute_seconds[0], rel=TOLERANCE)

"""Mixed precision: what is in bfloat16 and what in float32, in both frameworks; which devices have which precision.

The losses under every backend: tests/frameworks/test_agreement.py.
"""

import functools
import threading

import numpy as np
import pynvml
import pytest

from common.config import Settings
from common.model import weights
from common.model.cnn import Cnn
from common.model.decoder import Decoder
from common.model.description import parameters_of
from common.ranks import gpus
from common.ranks.gpus import Device
from common.ranks.launcher_variables import Ranks
from common.workloads import WORKLOADS, resolve
from launch.run import available
from tests.support import nvml, small_models
from tests.support.mistakes import refused

pytestmark = pytest.mark.usefixtures("frameworks")
tensorflow = modules = states = steps = None

# Small ones of each kind; and the difference of the frameworks' gradients in bfloat16, relative to the norm of all, twice as measured:
# where sums of products are rounded once, and where TensorFlow rounds partial sums too.
MODELS = [
    (Cnn(), 4e-5, 0.021),
    (Decoder(24, 3, 2, 10), 0.015, 0.03),
    (small_models.RESNET, 0.05, 0.05),
]
# The change of a loss from float32 to bfloat16, and the difference of the frameworks' losses in bfloat16, both relative.
LOSSES, LOSSES_OF_PARTIAL_SUMS = (2e-3, 3e-4), (1.2e-2, 1e-2)


def in_pytorch(precision, shapes):
    """Returns (loss, {name: gradient}, types of parameters and optimizer state, types of products) of a step."""
    torch, settings = steps.torch, resolve(Settings(precision=precision, optimizer="adam"), 1)
    module = modules.build(settings, "cpu", Ranks())
    optimizer = steps.optimizer_for(settings, module)
    states.restore(module, optimizer, weights.draw(parameters_of(shapes), 3, precision))
    inputs, targets, loss_weights = map(torch.from_numpy, small_models.random_batch(shapes, 5, precision)[:3])
    with recorder(torch) as products:
        loss = modules.Criterion(settings).loss(module(inputs), targets, loss_weights)
        loss.backward()
    gradients = {name: states.as_array(name, parameter.grad, module) for name, parameter in module.named_parameters()}
    optimizer.step()
    return loss.detach().numpy(), gradients, {value.dtype.name for value in states.gather(module, optimizer).values()}, products.types


def recorder(torch):
    """A context that notes the types of the results of matrix products, convolutions and attention in its `types`."""

    class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.types = set()

        def __torch_dispatch__(self, operation, types, arguments=(), settings=None):
            results = operation(*arguments, **(settings or {}))
            if any(part in str(operation) for part in ("mm", "convolution", "attention")):
                # Attention also returns sums of exponentials, and the first convolution has no gradient by its inputs.
                first = next(result for result in results if result is not None) if isinstance(results, tuple) else results
                self.types |= {str(first.dtype).removeprefix("torch.")}
            return results

    return Recorder()


def in_tensorflow(precision, shapes):
    """As in_pytorch."""
    tf, settings = tensorflow.losses.tf, resolve(Settings(precision=precision, optimizer="adam"), 1)
    model = tensorflow.models.build(settings, Ranks())
    optimizer = tensorflow.optimizer.Optimizer(settings, model.parameters)
    tensorflow.variables.restore(model.layers, model.parameters, optimizer, weights.draw(parameters_of(shapes), 3, precision))
    samples = [tf.constant(array) for array in small_models.random_batch(shapes, 5, precision)[:3]]

    @tf.function
    def step(inputs, targets, loss_weights):
        with tf.GradientTape() as tape:
            loss = tensorflow.losses.weighted_loss(model.forward(model.parameters, inputs, False), targets, loss_weights)
        gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, list(model.parameters.values()))]
        optimizer.step(model.parameters, gradients, tf.constant(0.001, loss.dtype))
        return loss, gradients

    operations = step.get_concrete_function(*samples).graph.get_operations()
    products = {node.outputs[0].dtype.name for node in operations if "MatMul" in node.type or "Conv2D" in node.type}
    loss, gradients = step(*samples)
    gradients = {
        name: tensorflow.variables.as_array(model.layers, name, value.numpy())
        for name, value in zip(model.parameters, gradients, strict=True)
    }
    return (
        loss.numpy(),
        gradients,
        {value.dtype.name for value in tensorflow.variables.gather(model.layers, model.parameters, optimizer).values()},
        products,
    )


def distance(gradients, reference):
    """The norm of the difference of all gradients, relative to the norm of all."""
    difference = sum(np.sum((gradients[name] - values) ** 2) for name, values in reference.items())
    return np.sqrt(difference / sum(np.sum(values**2) for values in reference.values()))


@functools.cache
def rounds_once():
    """Whether TensorFlow rounds a sum of products to bfloat16 once, as PyTorch does. Its kernels without AVX-512 do not."""
    tf, numbers = tensorflow.losses.tf, np.random.default_rng(1).standard_normal((2, 512, 512))
    left, right = (tf.cast(matrix, tf.bfloat16) for matrix in numbers)
    exact = tf.cast(left, tf.float64) @ tf.cast(right, tf.float64)
    return bool(tf.norm(tf.cast(left @ right, tf.float64) - exact) <= 2**-9 * tf.norm(exact))


@pytest.mark.matrix
@pytest.mark.parametrize(("shapes", "bound", "bound_of_partial_sums"), MODELS, ids=["cnn", "decoder", "resnet"])
def test_products_are_in_bfloat16_and_everything_that_lasts_is_in_float32(shapes, bound, bound_of_partial_sums, monkeypatch):
    bound, (change, difference) = (bound, LOSSES) if rounds_once() else (bound_of_partial_sums, LOSSES_OF_PARTIAL_SUMS)
    monkeypatch.setitem(WORKLOADS, "cnn", WORKLOADS["cnn"]._replace(model=shapes))
    gradients, losses = {}, {}
    for framework, computed in (("pytorch", in_pytorch), ("tensorflow", in_tensorflow)):
        for precision, product in (("bf16", "bfloat16"), ("fp32", "float32")):
            loss, gradients[framework, precision], lasting, products = computed(precision, shapes)
            assert (lasting, products, loss.dtype.name) == ({"float32"}, {product}, "float32")
            assert {gradient.dtype.name for gradient in gradients[framework, precision].values()} == {"float32"}
            losses[framework, precision] = loss
        assert 1e-3 < distance(gradients[framework, "bf16"], gradients[framework, "fp32"]) < 0.15
        assert 1e-6 < abs(losses[framework, "bf16"] / losses[framework, "fp32"] - 1) < change
    assert distance(gradients["tensorflow", "bf16"], gradients["pytorch", "bf16"]) < bound
    assert distance(gradients["tensorflow", "fp32"], gradients["pytorch", "fp32"]) < 2e-6
    assert losses["tensorflow", "bf16"] == pytest.approx(losses["pytorch", "bf16"], rel=difference)


def test_copies_of_a_module_compute_in_bfloat16_in_threads_of_their_own():
    # As DataParallel makes and calls them. A thread does not take over autocast, nor its type.
    module = modules.build(resolve(Settings(precision="bf16"), 1), "cpu", Ranks())
    replica, types = module._replicate_for_data_parallel(), []
    replica.parts = lambda: [lambda x: x @ x]
    thread = threading.Thread(target=lambda: types.append(replica(steps.torch.ones(2, 2)).dtype))
    thread.start()
    thread.join()
    assert types == [steps.torch.bfloat16]


# By the compute capability of the GPU; None: the driver does not tell.
@pytest.mark.parametrize(
    ("precision", "device", "version", "problem"),
    [
        ("fp32", "cpu", None, None),
        ("bf16", "cpu", None, None),
        ("tf32", "cpu", None, "TF32 is of GPUs, not of CPUs; use --precision fp32"),
        ("fp64", "cuda", (7, 0), None),
        ("bf16", "cuda", (7, 5), "bf16 needs a GPU with compute capability 8.0, and this one has 7.5; use --precision fp32"),
        ("tf32", "cuda", (7, 0), "tf32 needs a GPU with compute capability 8.0, and this one has 7.0; use --precision fp32"),
        ("bf16", "cuda", (8, 0), None),
        ("tf32", "cuda", (10, 0), None),
        ("bf16", "cuda", None, None),
    ],
)
def test_a_precision_that_a_device_lacks_is_refused_before_training(precision, device, version, problem, monkeypatch):
    nvml.install(monkeypatch, nvml.Driver())
    monkeypatch.setattr(gpus, "pci_bus_id", lambda _: "0000:07:00.0")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByPciBusId", lambda _: "first")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCudaComputeCapability", (lambda _: version) if version else nvml.refuse)
    assert gpus.precision_problem(precision, device) == problem
    placed = Device(device, 0 if device == "cuda" else None, None, None, None)
    if problem is None:
        gpus.expect_precision(precision, placed)
    else:
        with refused(f"--precision {precision}: {problem}"):
            gpus.expect_precision(precision, placed)
        answer = {"cpu": None, "cuda": None, "precision": {device: problem}}
        assert (available.problem(answer, device), available.problem(answer, None)) == (problem, None)

"""The formulas of floating-point operations, against what PyTorch counts in a training step, and by hand."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from common.model import flops
from common.model.families import Cnn, Decoder, parts_of
from common.workloads import WORKLOADS
from frameworks.shared.pytorch import pytorch
from tests.support.small_models import MODELS

BATCH = 3


def counted(model, inputs_need_gradient):
    """What PyTorch counts in the forward and backward pass of a batch. On the meta device nothing is computed."""
    module = pytorch.MODELS[type(model)](model, False).to("meta", torch.float32)
    kind = torch.int64 if isinstance(model, Decoder) else torch.float32
    inputs = torch.zeros(BATCH, *model.input_shape, dtype=kind, device="meta", requires_grad=inputs_need_gradient)
    # Other kernels of attention are not counted.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        module(inputs).sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_formula_gives_what_pytorch_counts(model):
    # Without the gradient by its inputs, the first layer has one product less.
    assert counted(model, inputs_need_gradient=not isinstance(model, Decoder)) == BATCH * flops.training(model)


def test_the_cnn_needs_no_gradient_by_its_images():
    assert counted(Cnn(), inputs_need_gradient=False) == BATCH * (flops.training(Cnn()) - 2 * 26 * 26 * 9 * 32)


def test_flops_are_two_for_each_multiplication_and_addition():
    conv1, conv2, dense1, dense2 = (part.flops for part in parts_of(Cnn()))
    assert (conv1, conv2) == (2 * 26 * 26 * 32 * 9, 2 * 24 * 24 * 64 * 32 * 9)
    assert (dense1, dense2) == (2 * 9216 * 128, 2 * 128 * 10)
    embedding, attention, feed, *_, head = (part.flops for part in parts_of(Decoder(8, 2, 2, 4, num_tokens=10)))
    # Width 8, context 4: four projections, scores and sums over four positions; SwiGLU of width 32.
    assert (embedding, head) == (0, 2 * 4 * 8 * 10)
    assert attention == 4 * (4 * 2 * 8 * 8) + 2 * (2 * 4 * 4 * 8)
    assert feed == 4 * (3 * 2 * 8 * 32)


@pytest.mark.parametrize(("workload", "number"), [("cnn", None), ("transformer", 64), ("transformer-base", 256), ("transformer-alcf", 20)])
def test_the_tokens_of_a_sample_are_those_that_are_predicted(workload, number):
    assert WORKLOADS[workload].model.tokens_per_sample == number

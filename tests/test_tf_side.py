"""TensorFlow's parameters are those of weights.py in another layout, and its model is the same function as PyTorch's."""

import numpy as np
import pytest

from common import weights
from common.config import Settings
from common.ranks import Ranks
from common.workloads import WORKLOADS, resolve

tf_side = pytest.importorskip("frameworks.tf_side")
torch_side = pytest.importorskip("frameworks.torch_side")

SHAPES = WORKLOADS["cnn"].parameters
SETTINGS = resolve(Settings(precision="fp64"), 1)


@pytest.mark.parametrize("name", SHAPES)
def test_a_parameter_comes_back_as_it_was(name):
    array = np.random.default_rng(0).normal(size=SHAPES[name])
    there = tf_side.as_variable("cnn", name, array)
    assert there.size == array.size
    np.testing.assert_array_equal(tf_side.as_array("cnn", name, there), array)


def test_both_frameworks_make_the_same_of_the_same_parameters_and_inputs():
    state = weights.draw(SHAPES, 3, "fp64")
    inputs = np.random.default_rng(1).normal(size=(5, 28, 28))
    model = tf_side.build(SETTINGS, Ranks())
    tf_side.restore(model, tf_side.Optimizer(SETTINGS, model.parameters), state)
    net = torch_side.build(SETTINGS, "cpu", Ranks())
    torch_side.restore(net, torch_side.optimizer_for(SETTINGS, net), state)
    expected = net(torch_side.torch.from_numpy(inputs)).detach().numpy()
    found = model.forward(model.parameters, tf_side.tf.constant(inputs), False).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    # Equal only if the layouts are: with the last two axes of the images swapped it is another function.
    assert not np.allclose(model.forward(model.parameters, tf_side.tf.constant(inputs.swapaxes(1, 2)), False).numpy(), expected)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_state_with_its_slots_comes_back_as_it_was(optimizer):
    settings = resolve(Settings(precision="fp64", optimizer=optimizer), 1)
    model = tf_side.build(settings, Ranks())
    made = tf_side.Optimizer(settings, model.parameters)
    stream = np.random.default_rng(2)
    state = {name: stream.normal(size=value.shape).astype(value.dtype) for name, value in tf_side.state(model, made).items()}
    tf_side.restore(model, made, state)
    for name, value in tf_side.state(model, made).items():
        np.testing.assert_array_equal(value, state[name], err_msg=name)

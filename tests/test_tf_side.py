"""TensorFlow's parameters are those of weights.py in another layout, and its models are the same functions as PyTorch's."""

import numpy as np
import pytest

from common import weights
from common.config import Settings
from common.models import Cnn, Decoder, EncoderDecoder, parameters_of
from common.ranks import Ranks
from common.workloads import WORKLOADS, resolve

tf_side = pytest.importorskip("frameworks.tf_side")
torch_side = pytest.importorskip("frameworks.torch_side")

SETTINGS = resolve(Settings(precision="fp64"), 1)
# Small ones of each kind, for the same code.
MODELS = [Cnn(), Decoder(24, 3, 2, 10), EncoderDecoder(width=24, num_heads=4, num_layers=2, hidden=40, source_length=2, target_length=5)]
NAMES = [(model, name) for model in MODELS for name in parameters_of(model)]


@pytest.fixture
def models(request, monkeypatch):
    """(the model without a framework, in TensorFlow, in PyTorch), both with the same parameters."""
    monkeypatch.setitem(WORKLOADS, "cnn", WORKLOADS["cnn"]._replace(model=request.param))
    state = weights.draw(parameters_of(request.param), 3, "fp64")
    model = tf_side.build(SETTINGS, Ranks())
    tf_side.restore(model, tf_side.Optimizer(SETTINGS, model.parameters), state)
    net = torch_side.build(SETTINGS, "cpu", Ranks())
    torch_side.restore(net, torch_side.optimizer_for(SETTINGS, net), state)
    return request.param, model, net


def batch_of(model):
    """Random (inputs, targets, weights) of five samples."""
    stream = np.random.default_rng(1)
    inputs = stream.integers(0, 256, (5, *model.input_shape)) if model.whole_inputs else stream.normal(size=(5, *model.input_shape))
    if model.whole_targets:
        targets = stream.integers(0, 10, (5, *model.target_shape))
        return inputs, targets, stream.random(targets.shape)
    targets = stream.random((5, *model.target_shape))
    return inputs, targets, stream.random(targets.shape[:-1])


@pytest.mark.parametrize(("model", "name"), NAMES, ids=lambda value: value if isinstance(value, str) else type(value).__name__)
def test_a_parameter_comes_back_as_it_was(model, name):
    array = np.random.default_rng(0).normal(size=parameters_of(model)[name].shape)
    there = tf_side.as_variable(name, array)
    assert there.size == array.size
    np.testing.assert_array_equal(tf_side.as_array(name, there), array)


@pytest.mark.parametrize("models", MODELS, indirect=True, ids=lambda model: type(model).__name__)
def test_both_frameworks_make_the_same_of_the_same_parameters_and_inputs(models):
    shapes, model, net = models
    inputs, _, _ = batch_of(shapes)
    expected = net(torch_side.torch.from_numpy(inputs)).detach().numpy()
    found = model.forward(model.parameters, tf_side.tf.constant(inputs), False).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    # Equal only if the layouts are: with axes or samples in another order it is another function.
    turned = inputs.swapaxes(1, 2) if isinstance(shapes, Cnn) else inputs[:, ::-1]
    assert not np.allclose(model.forward(model.parameters, tf_side.tf.constant(turned.copy()), False).numpy(), expected)


@pytest.mark.parametrize("models", MODELS, indirect=True, ids=lambda model: type(model).__name__)
def test_both_frameworks_have_the_same_loss_and_the_same_gradients(models):
    shapes, model, net = models
    inputs, targets, loss_weights = batch_of(shapes)
    torch, tf = torch_side.torch, tf_side.tf
    loss = torch_side.weighted_loss(net(torch.from_numpy(inputs)), torch.from_numpy(targets), torch.from_numpy(loss_weights))
    loss.backward()
    with tf.GradientTape() as tape:
        logits = model.forward(model.parameters, tf.constant(inputs), False)
        same = tf_side.weighted_loss(logits, tf.constant(targets), tf.constant(loss_weights))
    np.testing.assert_allclose(same.numpy(), loss.item(), rtol=1e-12)
    gradients = tape.gradient(same, model.parameters)
    for name, parameter in net.named_parameters():
        found = tf_side.as_array(name, tf.convert_to_tensor(gradients[name]).numpy())
        np.testing.assert_allclose(found, torch_side.as_array(parameter.grad), rtol=1e-9, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("workload", ["cnn", "transformer"])
def test_a_state_with_its_slots_comes_back_as_it_was(workload, optimizer):
    settings = resolve(Settings(workload=workload, precision="fp64", optimizer=optimizer), 1)
    model = tf_side.build(settings, Ranks())
    made = tf_side.Optimizer(settings, model.parameters)
    stream = np.random.default_rng(2)
    state = {name: stream.normal(size=value.shape).astype(value.dtype) for name, value in tf_side.state(model, made).items()}
    tf_side.restore(model, made, state)
    for name, value in tf_side.state(model, made).items():
        np.testing.assert_array_equal(value, state[name], err_msg=name)


def test_a_state_without_slots_is_the_parameters():
    model = tf_side.build(SETTINGS, Ranks())
    assert set(tf_side.state(model, None)) == set(model.parameters)

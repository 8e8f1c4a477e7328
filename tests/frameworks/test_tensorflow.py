"""TensorFlow: parameters of weights.py in another layout, and the same functions as in PyTorch."""

import numpy as np
import pytest

from common.config import Settings
from common.model import weights
from common.model.cnn import Cnn
from common.model.decoder import Decoder
from common.model.description import parameters_of, product
from common.model.resnet import ResNet50
from common.ranks.launcher_variables import Ranks
from common.workloads import WORKLOADS, resolve
from tests.support import small_models
from tests.support.running import BIN, completed
from tests.support.small_models import MODELS

pytestmark = pytest.mark.usefixtures("frameworks")
tensorflow = modules = states = steps = None

SETTINGS = resolve(Settings(precision="fp64"), 1)


@pytest.fixture
def implementations(request, monkeypatch):
    """Returns (the model without a framework, in TensorFlow, in PyTorch), both with the same parameters."""
    monkeypatch.setitem(WORKLOADS, "cnn", WORKLOADS["cnn"]._replace(model=request.param))
    state = weights.draw(parameters_of(request.param), 3, "fp64")
    # A block that ends in a batch norm of weight 0 would be left out.
    state |= {name: array + 0.5 for name, array in state.items() if name.endswith("bn3.weight")}
    model = tensorflow.models.build(SETTINGS, Ranks())
    tensorflow.variables.restore(model.layers, model.parameters, tensorflow.optimizer.Optimizer(SETTINGS, model.parameters), state)
    module = modules.build(SETTINGS, "cpu", Ranks())
    states.restore(module, steps.optimizer_for(SETTINGS, module), state)
    return request.param, model, module


@pytest.mark.parametrize("implementations", MODELS.values(), indirect=True, ids=MODELS)
def test_both_frameworks_have_the_same_logits_loss_and_gradients(implementations):
    shapes, model, module = implementations
    inputs, targets, loss_weights, _ = small_models.random_batch(shapes, 5)
    torch, tf = steps.torch, tensorflow.losses.tf
    expected = module(torch.from_numpy(inputs))
    loss = modules.Criterion(SETTINGS).loss(expected, torch.from_numpy(targets), torch.from_numpy(loss_weights))
    loss.backward()
    with tf.GradientTape() as tape:
        logits = model.forward(model.parameters, tf.constant(inputs), False)
        loss_here = tensorflow.losses.weighted_loss(logits, tf.constant(targets), tf.constant(loss_weights))
    np.testing.assert_allclose(logits.numpy(), expected.detach().numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(loss_here.numpy(), loss.item(), rtol=1e-12)
    gradients = tape.gradient(loss_here, model.parameters)
    for name, parameter in module.named_parameters():
        gradient = tensorflow.variables.as_array(model.layers, name, tf.convert_to_tensor(gradients[name]).numpy())
        np.testing.assert_allclose(gradient, states.as_array(name, parameter.grad, module), rtol=1e-9, atol=1e-11, err_msg=name)
    # Equal only if the layouts are: with axes or samples in another order it is another function.
    turned = inputs.swapaxes(1, 2) if isinstance(shapes, Cnn | ResNet50) else inputs[:, ::-1]
    assert not np.allclose(model.forward(model.parameters, tf.constant(turned.copy()), False).numpy(), logits.numpy())


@pytest.mark.parametrize("name", ["embedding", "dense1"])
def test_the_layout_of_a_weight_follows_from_its_layer_and_not_from_its_name(name):
    layers = {f"{name}.weight": product(name, weights.he_uniform((2, 3)))}
    array = np.arange(6.0).reshape(2, 3)
    tensor = tensorflow.variables.as_tensor(layers, f"{name}.weight", array)
    np.testing.assert_array_equal(tensor.numpy(), array.T)
    np.testing.assert_array_equal(tensorflow.variables.as_array(layers, f"{name}.weight", tensor.numpy()), array)


def test_batch_norm_in_float32_is_that_in_float64():
    tf, stream, batch_norm = (
        tensorflow.losses.tf,
        np.random.default_rng(6),
        small_models.RESNET.file_in("tensorflow").content.batch_norm,
    )
    # Deviations beside which epsilon shows, and others.
    x = 3 + stream.normal(size=(4, 5, 6, 2)) * [1e-3, 2.0]
    scale, offset = stream.normal(size=(2, 2))
    single, double = (
        batch_norm(*(tf.constant(array, dtype) for array in (x, scale, offset)), 1e-5).numpy() for dtype in (tf.float32, tf.float64)
    )
    np.testing.assert_allclose(single, double, atol=2e-3)
    deviations = ((double - offset) / scale).std((0, 1, 2))
    variances = x.var((0, 1, 2))
    np.testing.assert_allclose(deviations, np.sqrt(variances / (variances + 1e-5)), rtol=1e-9)


# But for batch norm, whose statistics are those of a micro-batch.
@pytest.mark.matrix
@pytest.mark.parametrize(
    "implementations", [Cnn(), Decoder(24, 3, 2, 10, tied=True)], indirect=True, ids=lambda model: type(model).__name__
)
def test_micro_batches_have_the_loss_and_the_gradients_of_the_batch(implementations):
    shapes, model, _ = implementations
    tf, parameters = tensorflow.losses.tf, list(model.parameters.values())

    def loss(inputs, targets, loss_weights):
        return tensorflow.losses.weighted_loss(model.forward(model.parameters, inputs, False), targets, loss_weights)

    @tf.function
    def gradients(num_parts):
        with tf.GradientTape() as tape:
            # Twice, so that what the tape passes on counts.
            total = 2 * tensorflow.losses.summed(loss, samples, parameters, num_parts)
        return [total, *map(tf.convert_to_tensor, tape.gradient(total, parameters))]

    samples = [tf.constant(array) for array in small_models.random_batch(shapes, 5)[:3]]
    for gradient, expected in zip(gradients(5), gradients(1), strict=True):
        np.testing.assert_allclose(gradient.numpy(), expected.numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_both_frameworks_take_the_same_steps(optimizer):
    settings = resolve(Settings(precision="fp64", optimizer=optimizer), 1)
    state = weights.draw(parameters_of(Cnn()), 3, "fp64")
    model, module = tensorflow.models.build(settings, Ranks()), modules.build(settings, "cpu", Ranks())
    in_tensorflow, in_pytorch = tensorflow.optimizer.Optimizer(settings, model.parameters), steps.optimizer_for(settings, module)
    tensorflow.variables.restore(model.layers, model.parameters, in_tensorflow, state)
    states.restore(module, in_pytorch, state)
    stream = np.random.default_rng(5)
    for learning_rate in (0.1, 0.3, 0.2):
        # Small ones, beside which epsilon shows.
        gradients = {name: 1e-6 * stream.normal(size=value.shape) for name, value in state.items()}
        in_order = [tensorflow.variables.as_tensor(model.layers, name, gradients[name]) for name in model.parameters]
        in_tensorflow.step(model.parameters, in_order, tensorflow.losses.tf.constant(learning_rate, tensorflow.losses.tf.float64))
        for name, parameter in module.named_parameters():
            parameter.grad = states.as_tensor(name, gradients[name], module)
        steps.set_learning_rate(in_pytorch, learning_rate)
        in_pytorch.step()
    expected, state = states.gather(module, in_pytorch), tensorflow.variables.gather(model.layers, model.parameters, in_tensorflow)
    assert state.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(state[name], value, rtol=1e-9, atol=1e-15, err_msg=name)


@pytest.mark.matrix
def test_a_rank_of_the_strategy_ends_with_sigterm():
    program = """if True:
        import os, signal, sys, time
        from common.ranks.launcher_variables import Ranks
        from frameworks.shared.tensorflow import mirrored
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
        mirrored.begin(Ranks(), "grpc")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    """
    done = completed(BIN / "python", "-c", program)
    assert done.returncode == 3, done.stderr


def test_every_family_is_implemented_on_both_frameworks_and_has_its_models_in_the_tests():
    families = {type(workload.model) for workload in WORKLOADS.values()}
    assert {type(model) for model in MODELS.values()} == families
    for model in MODELS.values():
        assert model.file_in("pytorch").has("model")
        assert model.file_in("tensorflow").has("outputs")

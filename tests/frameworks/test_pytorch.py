"""PyTorch: parameters of weights.py, optimizers with the shared update rules, dropout that differs between ranks."""

import numpy as np
import pytest
import torch

from common import workloads
from common.config import Settings
from common.model import model_file, weights
from common.model.description import parts_of
from common.ranks.launcher_variables import Ranks
from common.trainer import Batch
from frameworks.shared.pytorch import modules, states, steps
from tests.support import small_models
from tests.support.user_models import PLAIN, written

WORKLOADS = ("cnn", "transformer", "resnet50")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """A small model in the place of a large one."""
    monkeypatch.setitem(workloads.WORKLOADS, "resnet50", workloads.WORKLOADS["resnet50"]._replace(model=small_models.RESNET))


def drawn(workload="cnn"):
    return weights.draw(workloads.WORKLOADS[workload].parameters, 3, "fp64")


def made(rank=0, **settings):
    """Returns (model, optimizer) in float64, at the initial parameters."""
    resolved = workloads.resolve(Settings(precision="fp64", **settings), 1)
    model = modules.build(resolved, "cpu", Ranks(rank, 2))
    optimizer = steps.optimizer_for(resolved, model)
    states.restore(model, optimizer, drawn(resolved.workload))
    return model, optimizer


def stepped(model, optimizer, learning_rates):
    """Returns (state after a step at each learning rate, gradients of the steps)."""
    stream, gradients = np.random.default_rng(0), []
    shapes = {name: array.shape for name, array in states.gather(model, None).items()}
    for learning_rate in learning_rates:
        gradients.append({name: stream.normal(size=shape) for name, shape in shapes.items()})
        for name, parameter in model.named_parameters():
            parameter.grad = states.as_tensor(name, gradients[-1][name], model)
        steps.set_learning_rate(optimizer, learning_rate)
        optimizer.step()
    return states.gather(model, optimizer), gradients


def samples(workload, num_samples=2):
    model, stream = workloads.WORKLOADS[workload].model, np.random.default_rng(0)
    shape = (num_samples, *model.input_shape)
    return torch.from_numpy(stream.integers(0, 256, shape) if model.whole_inputs else stream.normal(size=shape))


def expect_equal(state, expected):
    assert state.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(state[name], value, err_msg=name)


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_state_with_optimizer_state_is_restored(workload, optimizer):
    state, _ = stepped(*made(workload=workload, optimizer=optimizer), [0.1, 0.2])
    names = drawn(workload).keys()
    prefixes = ("momentum",) if optimizer == "sgd" else ("adam_mean", "adam_square", "adam_step")
    assert state.keys() == names | {f"{prefix}/{name}" for prefix in prefixes for name in names}
    # Shapes are the same for every framework: the number of steps is a scalar.
    for name, value in state.items():
        assert value.shape == (() if name.startswith("adam_step/") else state[name.rpartition("/")[2]].shape)
    model, fresh = made(workload=workload, optimizer=optimizer)
    expect_equal(states.gather(model, None), drawn(workload))
    states.restore(model, fresh, state)
    expect_equal(states.gather(model, fresh), state)


def test_the_weight_of_a_plain_convolution_keeps_its_layout_and_so_does_a_layer_with_the_name_of_one_of_the_cnn():
    # With equal sizes a permuted weight has the shape of the right one.
    model = torch.nn.ModuleDict({"convolution": torch.nn.Conv2d(3, 3, 3), "dense1": torch.nn.Linear(4, 2)})
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    plain = {name: parameter.detach().numpy().copy() for name, parameter in model.named_parameters()}
    expect_equal(states.gather(model, optimizer), plain)
    states.restore(model, optimizer, {name: 2 * values for name, values in plain.items()})
    expect_equal(
        {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}, {name: 2 * plain[name] for name in plain}
    )


def test_running_statistics_are_part_of_a_state_and_constant_tables_are_not():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    model.register_buffer("table", torch.arange(3.0), persistent=False)
    optimizer = torch.optim.SGD(model.parameters())
    before = states.gather(model, None)
    assert {name for name in before if name.startswith("buffer/")} == {
        f"buffer/1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")
    }
    model(torch.randn(8, 2))
    after = states.gather(model, None)
    states.restore(model, optimizer, {name: values for name, values in before.items() if not name.startswith("buffer/")})
    expect_equal(states.gather(model, None), after)
    states.restore(model, optimizer, before)
    expect_equal(states.gather(model, None), before)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_optimizer_state_that_a_state_lacks_is_reset(optimizer):
    model, used = made(optimizer=optimizer)
    stepped(model, used, [0.1, 0.2])
    states.restore(model, used, drawn())
    expect_equal(stepped(model, used, [0.1])[0], stepped(*made(optimizer=optimizer), [0.1])[0])


@pytest.mark.parametrize("optimizer_class", [torch.optim.Adamax, torch.optim.NAdam])
def test_the_optimizer_of_a_file_begins_anew_and_is_restored(optimizer_class):
    (model, _), (another, _) = made(), made()
    optimizer, fresh = (optimizer_class(module.parameters()) for module in (model, another))
    state, _ = stepped(model, optimizer, [0.1, 0.2])
    states.restore(another, fresh, state)
    expect_equal(states.gather(another, fresh), state)
    states.restore(model, optimizer, drawn())
    expect_equal(stepped(model, optimizer, [0.1, 0.2])[0], state)


@pytest.mark.parametrize("workload", ["cnn", "transformer"])
def test_the_parts_of_a_model_follow_one_another_to_its_logits_with_the_shapes_and_layers_that_they_state(workload):
    model, _ = made(workload=workload)
    x = samples(workload)
    expected = model(x)
    for part, function in zip(parts_of(workloads.WORKLOADS[workload].model), model.parts(), strict=True):
        x = function(x.detach())
        assert x.shape == (2, *part.output_shape)
        model.zero_grad()
        x.sum().backward()
        used = {name.rpartition(".")[0] for name, parameter in model.named_parameters() if parameter.grad is not None}
        assert used == {layer.name for layer in part.layers if layer.parameters}
    assert torch.equal(x, expected)


def test_momentum_accumulates_gradients_without_the_learning_rate():
    state, (first, second) = stepped(*made(momentum=0.9), [0.1, 0.3])
    for name, initial in drawn().items():
        expected = initial - 0.1 * first[name] - 0.3 * (0.9 * first[name] + second[name])
        np.testing.assert_allclose(state[name], expected, rtol=1e-12, atol=1e-12)


def test_adams_epsilon_is_outside_the_square_root():
    state, (gradient,) = stepped(*made(optimizer="adam"), [0.1])
    for name, initial in drawn().items():
        expected = initial - 0.1 * gradient[name] / (np.abs(gradient[name]) + 1e-8)
        np.testing.assert_allclose(state[name], expected, rtol=1e-9, atol=1e-12)


def test_dropout_is_off_unless_asked_for_and_then_another_on_each_rank():
    inputs = torch.ones(4, *workloads.WORKLOADS["cnn"].model.input_shape, dtype=torch.float64)

    def logits(**settings):
        model, _ = made(**settings)
        return model.train()(inputs)

    assert torch.equal(logits(), logits(rank=1))
    assert torch.equal(logits(dropout=True), logits(dropout=True))
    assert not torch.equal(logits(dropout=True), logits(dropout=True, rank=1))


@pytest.mark.parametrize(("workload", "probabilities"), [("cnn", [0.25, 0.5]), ("transformer", [])])
def test_dropout_has_the_probabilities_of_the_conventions(workload, probabilities):
    model, _ = made(workload=workload, dropout=True)
    assert list(dict.fromkeys(module.p for module in model.modules() if isinstance(module, torch.nn.Dropout))) == probabilities


def random_logits(*shape):
    return torch.from_numpy(np.random.default_rng(0).normal(size=shape))


LOSS_WEIGHTS = torch.tensor([[0.5, 0.0, 2.0], [0.0, 0.25, 1.0]], dtype=torch.float64)


def test_each_token_has_a_weight_of_its_own():
    logits, targets = random_logits(2, 3, 256), torch.tensor([[1, 2, 3], [4, 5, 255]])
    shares = logits.softmax(-1)
    expected = -sum(LOSS_WEIGHTS[i, j] * shares[i, j, targets[i, j]].log() for i in range(2) for j in range(3))
    assert torch.allclose(modules.Criterion(Settings()).loss(logits, targets, LOSS_WEIGHTS), expected)


def test_a_step_has_micro_batches_of_equal_size_of_which_one_is_the_last():
    batches = [Batch(np.arange(6.0), np.arange(6), np.ones(6), rate) for rate in (0.5, 0.25)]
    expected = [([first, first + 1], [first, first + 1], [1, 1], first == 4) for first in (0, 2, 4)]
    for (micro_batches, learning_rate), rate in zip(steps.in_micro_batches(batches, 3, "cpu"), (0.5, 0.25), strict=True):
        assert learning_rate == rate
        assert [(*map(torch.Tensor.tolist, tensors), is_last) for *tensors, is_last in micro_batches] == expected


@pytest.mark.parametrize("workload", ["cnn", "transformer"])
def test_totals_add_up_over_batches_without_dropout_and_what_has_weight_0_is_in_none(workload):
    model, _ = made(workload=workload, dropout=True)
    inputs, stream = samples(workload, 6), np.random.default_rng(2)
    targets = stream.integers(0, 10, (6, *workloads.WORKLOADS[workload].model.target_shape))
    with torch.no_grad():
        logits = model.eval()(inputs)
    # Every second target is what the model predicts.
    predicted = logits.argmax(-1).numpy()
    targets.flat[::2] = predicted.flat[::2]
    counts = stream.integers(0, 2, targets.shape).astype(np.float64)
    batches = [Batch(inputs[part].numpy(), targets[part], counts[part]) for part in (slice(0, 4), slice(4, 6))]
    totals = steps.evaluate(model.train(), batches, "cpu", modules.Criterion(Settings()))
    assert totals.num_losses == counts.sum()
    assert totals.num_correct == ((predicted == targets) * counts).sum() > 0
    losses = -logits.log_softmax(-1).gather(-1, torch.from_numpy(targets)[..., None])[..., 0].numpy()
    assert totals.loss == pytest.approx((losses * counts).sum(), rel=1e-9)


@pytest.mark.parametrize("name", ["decoder", "resnet"])
def test_fsdp_shards_each_layer_by_itself(name, monkeypatch):
    from frameworks.shared.pytorch import fully_shard

    sharded = []
    monkeypatch.setattr(fully_shard.dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(fully_shard, "init_device_mesh", lambda *_: None)
    monkeypatch.setattr(fully_shard, "fully_shard", lambda part, **_: sharded.append(part))
    model = small_models.MODELS[name]
    module = small_models.module_of(model)
    layers = model_file.layers_of(model.file_in("pytorch"), module)
    fully_shard.shard(module, layers, Settings(), torch.device("cpu"))
    assert sharded == [*layers, module]
    assert len(layers) == (model.num_layers if name == "decoder" else sum(model.blocks)) > 1


@pytest.mark.parametrize(
    ("made", "rates"),
    [
        ("Adam(p)", [0.03]),
        ("SGD(p, 0.1)", [0.03]),
        ("SGD([{'params': [q], 'lr': rate} for q, rate in zip(p, (0.02, 0.01))])", [0.06, 0.03]),
    ],
)
def test_an_optimizer_of_a_file_has_its_learning_rate_and_groups_with_other_rates_keep_their_ratios_to_it(made, rates, tmp_path):
    path = written(tmp_path, f"{PLAIN}\nLEARNING_RATE = 0.01\ndef optimizer(p):\n    return torch.optim.{made}\n")
    optimizer = model_file.optimizer_of(model_file.read(str(path), None), torch.nn.Linear(3, 4).named_parameters())
    steps.set_learning_rate(optimizer, 0.03)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(rates)


def test_gradients_that_are_0_are_left_out_unless_another_shard_has_numbers():
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(4)]
    for parameter, gradient in zip(parameters, ([0.0, 1.0], [0.0, 0.0], [0.0, 0.0]), strict=False):
        parameter.grad = torch.tensor(gradient)
    steps.remove_zeros(parameters, lambda counts: counts.add_(torch.tensor([0, 0, 1])))
    assert [parameter.grad is None for parameter in parameters] == [False, True, False, True]

"""PyTorch's parameters are those of weights.py, its optimizers follow the shared rules, and dropout differs between ranks."""

import numpy as np
import pytest
import torch

from common import weights, workloads
from common.config import Settings
from common.ranks import Ranks
from frameworks import torch_side

SHAPES = workloads.WORKLOADS["cnn"].parameters


def made(rank=0, **settings):
    """(settings, model, optimizer) in float64, at the initial parameters."""
    resolved = workloads.resolve(Settings(precision="fp64", **settings), 1)
    model = torch_side.build(resolved, "cpu", Ranks(rank, 2))
    optimizer = torch_side.optimizer_for(resolved, model)
    torch_side.restore(model, optimizer, weights.draw(SHAPES, 3, "fp64"))
    return resolved, model, optimizer


def stepped(model, optimizer, rates):
    """Parameters after a step at each rate, and the gradients that the steps took."""
    stream, gradients = np.random.default_rng(0), []
    for rate in rates:
        gradients.append({name: stream.normal(size=shape) for name, shape in SHAPES.items()})
        for name, parameter in model.named_parameters():
            parameter.grad = torch_side.as_tensor(gradients[-1][name])
        torch_side.set_learning_rate(optimizer, rate)
        optimizer.step()
    return torch_side.state(model, optimizer), gradients


def test_the_model_has_the_parameters_of_the_workload():
    _, model, optimizer = made()
    assert {name: value.shape for name, value in torch_side.state(model, optimizer).items()} == SHAPES


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_state_with_its_slots_comes_back_as_it_was(optimizer):
    state, _ = stepped(*made(optimizer=optimizer)[1:], [0.1, 0.2])
    _, model, fresh = made(optimizer=optimizer)
    torch_side.restore(model, fresh, state)
    found = torch_side.state(model, fresh)
    assert found.keys() == state.keys()
    for name, value in state.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_momentum_keeps_gradients_and_not_rates_while_the_rate_rises():
    initial = weights.draw(SHAPES, 3, "fp64")
    state, (first, second) = stepped(*made(momentum=0.9)[1:], [0.1, 0.3])
    for name in SHAPES:
        expected = initial[name] - 0.1 * first[name] - 0.3 * (0.9 * first[name] + second[name])
        np.testing.assert_allclose(state[name], expected, rtol=1e-12, atol=1e-12)


def test_adams_epsilon_stands_outside_the_square_root():
    initial = weights.draw(SHAPES, 3, "fp64")
    state, (gradient,) = stepped(*made(optimizer="adam")[1:], [0.1])
    for name in SHAPES:
        expected = initial[name] - 0.1 * gradient[name] / (np.abs(gradient[name]) + 1e-8)
        np.testing.assert_allclose(state[name], expected, rtol=1e-9, atol=1e-12)


def test_dropout_is_off_unless_asked_for_and_then_another_on_each_rank():
    inputs = torch.ones(4, 28, 28, dtype=torch.float64)

    def logits(**settings):
        _, model, _ = made(**settings)
        return model.train()(inputs)

    assert torch.equal(logits(), logits(rank=1))
    assert torch.equal(logits(dropout=True), logits(dropout=True))
    assert not torch.equal(logits(dropout=True), logits(dropout=True, rank=1))


def test_samples_of_weight_zero_do_not_count():
    logits, targets = torch.randn(4, 10, dtype=torch.float64), torch.tensor([1, 2, 3, 4])
    weights_of = torch.tensor([0.5, 0.5, 0.0, 0.0], dtype=torch.float64)
    assert torch.allclose(torch_side.weighted_loss(logits, targets, weights_of), torch.nn.functional.cross_entropy(logits[:2], targets[:2]))

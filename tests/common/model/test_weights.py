"""Initial parameters depend only on seed and name; fp32 is fp64 rounded."""

import math

import numpy as np
import pytest

from common.model.weights import constant, digest, draw, he_uniform, normal, xavier_uniform

PARAMETERS = {
    "conv.weight": he_uniform((8, 4, 3, 3)),
    "conv.bias": constant((8,)),
    "dense.weight": he_uniform((16, 50)),
    "dense.bias": constant((16,)),
    "attention.weight": xavier_uniform((90, 30)),
    "norm.weight": constant((16,), 1.0),
    "embedding.weight": normal((100, 200), 0.25),
}
DRAWN = [name for name, initial in PARAMETERS.items() if initial.distribution != "constant"]


def test_the_same_seed_draws_the_same_arrays():
    first, again = draw(PARAMETERS, 1, "fp64"), draw(PARAMETERS, 1, "fp64")
    assert {name: array.shape for name, array in first.items()} == {name: initial.shape for name, initial in PARAMETERS.items()}
    for name in PARAMETERS:
        np.testing.assert_array_equal(first[name], again[name])


@pytest.mark.parametrize("name", DRAWN)
def test_another_seed_draws_other_arrays(name):
    assert (draw(PARAMETERS, 1, "fp64")[name] != draw(PARAMETERS, 2, "fp64")[name]).all()


@pytest.mark.parametrize("initial", [he_uniform((16, 50)), normal((16, 50), 1.0)])
def test_weights_of_one_shape_are_drawn_apart(initial):
    drawn = draw({"a.weight": initial, "b.weight": initial}, 1, "fp64")
    assert (drawn["a.weight"] != drawn["b.weight"]).all()


@pytest.mark.parametrize("name", PARAMETERS)
def test_fp32_is_fp64_rounded(name):
    single, double = draw(PARAMETERS, 1, "fp32")[name], draw(PARAMETERS, 1, "fp64")[name]
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    np.testing.assert_array_equal(single, double.astype(np.float32))


@pytest.mark.parametrize(("name", "fans"), [("conv.weight", 4 * 3 * 3), ("dense.weight", 50), ("attention.weight", 90 + 30)])
def test_uniform_weights_fill_the_bound_of_the_square_root_of_6_over_their_fans(name, fans):
    values, bound = draw(PARAMETERS, 1, "fp64")[name], math.sqrt(6 / fans)
    assert np.abs(values).max() <= bound
    assert values.min() < -0.95 * bound
    assert values.max() > 0.95 * bound


def test_normal_weights_have_mean_0_and_their_deviation():
    values = draw(PARAMETERS, 1, "fp64")["embedding.weight"]
    # Of 20,000 values; the shares within one and two deviations are those of the bell.
    assert values.mean() == pytest.approx(0, abs=0.25 * 0.03)
    assert values.std() == pytest.approx(0.25, rel=0.02)
    assert (np.abs(values) < 0.25).mean() == pytest.approx(0.6827, abs=0.015)
    assert (np.abs(values) < 0.50).mean() == pytest.approx(0.9545, abs=0.01)


@pytest.mark.parametrize(("name", "value"), [("conv.bias", 0), ("dense.bias", 0), ("norm.weight", 1)])
def test_constants_start_at_their_value(name, value):
    assert (draw(PARAMETERS, 1, "fp32")[name] == value).all()


def test_another_parameter_changes_none_of_the_others():
    before, after = draw(PARAMETERS, 1, "fp64"), draw({"new.weight": he_uniform((5, 5)), **PARAMETERS}, 1, "fp64")
    for name in PARAMETERS:
        np.testing.assert_array_equal(before[name], after[name])


def test_the_digest_does_not_depend_on_the_order_or_the_layout_in_memory():
    state = draw(PARAMETERS, 1, "fp32")
    assert digest(dict(reversed(state.items()))) == digest(state)
    assert digest({name: np.asfortranarray(array) for name, array in state.items()}) == digest(state)


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_digest_changes_with_one_bit(name):
    state = draw(PARAMETERS, 1, "fp32")
    changed = state[name].copy()
    changed.view(np.uint32).flat[-1] ^= 1
    assert digest(state | {name: changed}) != digest(state)


def test_the_digest_changes_with_a_name():
    state = draw(PARAMETERS, 1, "fp32")
    # The new name sorts to the same place, so that the order does not change.
    renamed = {("conv.bias_" if name == "conv.bias" else name): array for name, array in state.items()}
    assert digest(renamed) != digest(state)

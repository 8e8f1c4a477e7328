"""The initial parameters: drawn from the seed and the name alone, alike in both precisions."""

import math

import numpy as np
import pytest

from common.weights import digest, draw
from common.workloads import CNN

SHAPES = {"conv.weight": (8, 4, 3, 3), "conv.bias": (8,), "dense.weight": (16, 50), "dense.bias": (16,)}
WEIGHTS = [name for name in SHAPES if name.endswith(".weight")]


def test_the_same_seed_draws_the_same_arrays():
    first, again = draw(SHAPES, 1, "fp64"), draw(SHAPES, 1, "fp64")
    assert {name: array.shape for name, array in first.items()} == SHAPES
    for name in SHAPES:
        np.testing.assert_array_equal(first[name], again[name])


@pytest.mark.parametrize("name", WEIGHTS)
def test_another_seed_draws_other_arrays(name):
    assert (draw(SHAPES, 1, "fp64")[name] != draw(SHAPES, 2, "fp64")[name]).all()


def test_weights_of_one_shape_are_drawn_apart():
    drawn = draw({"a.weight": (16, 50), "b.weight": (16, 50)}, 1, "fp64")
    assert (drawn["a.weight"] != drawn["b.weight"]).all()


@pytest.mark.parametrize("name", SHAPES)
def test_fp32_is_fp64_rounded(name):
    single, double = draw(SHAPES, 1, "fp32")[name], draw(SHAPES, 1, "fp64")[name]
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    np.testing.assert_array_equal(single, double.astype(np.float32))


@pytest.mark.parametrize(("name", "fan_in"), [("conv.weight", 4 * 3 * 3), ("dense.weight", 50)])
def test_weights_fill_the_bound_of_the_square_root_of_6_over_the_fan_in(name, fan_in):
    values, bound = draw(SHAPES, 1, "fp64")[name], math.sqrt(6 / fan_in)
    assert np.abs(values).max() <= bound
    assert values.min() < -0.95 * bound
    assert values.max() > 0.95 * bound


@pytest.mark.parametrize("name", ["conv.bias", "dense.bias"])
def test_biases_start_at_0(name):
    assert not draw(SHAPES, 1, "fp32")[name].any()


def test_another_parameter_changes_none_of_the_others():
    before, after = draw(SHAPES, 1, "fp64"), draw({"new.weight": (5, 5), **SHAPES}, 1, "fp64")
    for name in SHAPES:
        np.testing.assert_array_equal(before[name], after[name])


def test_the_cnn_has_its_1199882_parameters():
    assert sum(array.size for array in draw(CNN.parameters, 1, "fp32").values()) == 1_199_882


def test_the_digest_does_not_depend_on_the_order_or_the_layout_in_memory():
    state = draw(SHAPES, 1, "fp32")
    assert digest(dict(reversed(state.items()))) == digest(state)
    assert digest({name: np.asfortranarray(array) for name, array in state.items()}) == digest(state)


@pytest.mark.parametrize("name", SHAPES)
def test_the_digest_changes_with_one_bit(name):
    state = draw(SHAPES, 1, "fp32")
    changed = state[name].copy()
    changed.view(np.uint32).flat[-1] ^= 1
    assert digest(state | {name: changed}) != digest(state)


def test_the_digest_changes_with_a_name():
    state = draw(SHAPES, 1, "fp32")
    # A name that stays at its place in the order, or the order alone would make the difference.
    renamed = {("conv.bias_" if name == "conv.bias" else name): array for name, array in state.items()}
    assert digest(renamed) != digest(state)

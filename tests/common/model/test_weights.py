"""Initial parameters depend only on seed and name; fp32 is fp64 rounded."""

import math

import numpy as np
import pytest

from common.model.weights import constant, digest, draw, he_uniform, normal

PARAMETERS = {
    "conv.weight": he_uniform((8, 4, 3, 3)),
    "conv.bias": constant((8,)),
    "dense.weight": he_uniform((16, 50)),
    "dense.bias": constant((16,)),
    "norm.weight": constant((16,), 1.0),
    "embedding.weight": normal((100, 200), 0.25),
}


@pytest.fixture(scope="module")
def drawn():
    return draw(PARAMETERS, 1, "fp64")


def test_arrays_follow_from_seed_and_name_whatever_other_parameters_there_are(drawn):
    with_another = draw({"new.weight": he_uniform((5, 5)), **PARAMETERS}, 1, "fp64")
    of_another_seed = draw(PARAMETERS, 2, "fp64")
    for name, array in drawn.items():
        assert array.shape == PARAMETERS[name].shape
        np.testing.assert_array_equal(array, with_another[name])
        assert PARAMETERS[name].distribution == "constant" or (array != of_another_seed[name]).all()


@pytest.mark.parametrize("initial", [he_uniform((16, 50)), normal((16, 50), 1.0)])
def test_weights_of_one_shape_are_drawn_apart(initial):
    a, b = draw({"a.weight": initial, "b.weight": initial}, 1, "fp64").values()
    assert (a != b).all()


def test_fp32_is_fp64_rounded(drawn):
    for name, array in draw(PARAMETERS, 1, "fp32").items():
        assert (array.dtype, drawn[name].dtype) == (np.float32, np.float64)
        np.testing.assert_array_equal(array, drawn[name].astype(np.float32))


@pytest.mark.parametrize(("name", "fans"), [("conv.weight", 4 * 3 * 3), ("dense.weight", 50)])
def test_uniform_weights_fill_the_bound_of_the_square_root_of_6_over_their_fans(name, fans, drawn):
    values, bound = drawn[name], math.sqrt(6 / fans)
    assert np.abs(values).max() <= bound
    assert values.min() < -0.95 * bound
    assert values.max() > 0.95 * bound


def test_normal_weights_have_mean_0_and_their_deviation_and_constants_their_value(drawn):
    values = drawn["embedding.weight"]
    # Of 20,000 values; the shares within one and two deviations are those of the bell.
    assert values.mean() == pytest.approx(0, abs=0.25 * 0.03)
    assert values.std() == pytest.approx(0.25, rel=0.02)
    assert (np.abs(values) < 0.25).mean() == pytest.approx(0.6827, abs=0.015)
    assert (np.abs(values) < 0.50).mean() == pytest.approx(0.9545, abs=0.01)
    assert [set(drawn[name].tolist()) for name in ("conv.bias", "dense.bias", "norm.weight")] == [{0}, {0}, {1}]


def test_the_digest_does_not_depend_on_the_order_or_the_layout_in_memory(drawn):
    assert digest(dict(reversed(drawn.items()))) == digest(drawn)
    assert digest({name: np.asfortranarray(array) for name, array in drawn.items()}) == digest(drawn)


def test_the_digest_changes_with_one_bit_and_with_a_name(drawn):
    digests = {digest(drawn)}
    for name in PARAMETERS:
        changed = drawn[name].copy()
        changed.view(np.uint64).flat[-1] ^= 1
        digests.add(digest(drawn | {name: changed}))
    # The new name sorts to the same place, so that the order does not change.
    digests.add(digest({("conv.bias_" if name == "conv.bias" else name): array for name, array in drawn.items()}))
    assert len(digests) == 2 + len(PARAMETERS)

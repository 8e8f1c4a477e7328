"""A step over a link that was not measured, from two that were."""

import numpy as np
import pytest

from launch.forecast.scaling.measured import Size
from launch.forecast.scaling.model import Exchange
from launch.forecast.scaling.stragglers import Slowest
from tests.bench import links

GIGABIT = 125e6
# A byte takes so long through the library over a fast link, and over one of a gigabit, where the library is slower than the link.
OVER_FAST, OVER_SLOW = 1e-9, 1.2e-8
COMPUTE, REST, NUM_BYTES, ALPHA = 0.020, 0.002, 4.8e6, 2e-4


def seconds(size_bytes, bytes_per_second):
    library = OVER_SLOW if bytes_per_second <= GIGABIT else OVER_FAST
    return 2 * ALPHA + size_bytes * max(library, links.FRAMES / bytes_per_second)


def size(bytes_per_second):
    """Two ranks on two nodes, who exchange all gradients after their backward pass."""
    plain = tuple((float(num), seconds(num, bytes_per_second)) for num in (2**10, 2**15, 2**20, NUM_BYTES))
    step = COMPUTE + seconds(NUM_BYTES, bytes_per_second) + REST
    exchanges = (Exchange(1.0, NUM_BYTES, "all_reduce"),)
    return Size(2, 2, step, COMPUTE, 0.0, 0.0, 0.0, 1000, 32, plain, exchanges, False, Slowest(np.ones(30), 2))


@pytest.mark.parametrize("names", [("ring",), ("halving",)])
@pytest.mark.parametrize("bytes_per_second", [25e6, 6.25e6, GIGABIT, 1e12])
def test_the_slow_link_and_the_fast_one_tell_of_others(bytes_per_second, names):
    fast, slow = size(1e12), size(GIGABIT)
    model = links.fit(fast, slow, GIGABIT, bytes_per_second, names)
    assert model.step_seconds(2) == pytest.approx(COMPUTE + seconds(NUM_BYTES, bytes_per_second) + REST)

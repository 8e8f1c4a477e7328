"""A meter counts what happens outside of its pauses."""

import numpy as np
import pytest

from common.meter import Meter


@pytest.mark.parametrize("unit", [1.0, np.array([1.0, 10.0])])
def test_pauses_do_not_count(unit):
    read = iter(np.multiply.outer([5.0, 6.0, 6.5, 16.5, 17.0, 17.5, 117.5, 118.0], unit))
    meter = Meter(lambda: next(read))
    np.testing.assert_array_equal(meter.now(), 1 * unit)
    for reason, seconds in (("others", 2), ("checks", 3)):
        with meter.pause(reason):
            pass
        np.testing.assert_array_equal(meter.now(), seconds * unit)
    np.testing.assert_array_equal([meter.paused[reason] for reason in ("others", "checks")], [10 * unit, 100 * unit])

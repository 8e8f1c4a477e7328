"""The bucket recurrence, against steps that were worked out by hand."""

import pytest

from launch.forecast.network.algorithms import Machine
from launch.forecast.network.hockney import Regime
from launch.forecast.scaling import model
from launch.forecast.scaling.model import Exchange

# A second for each byte, of which a broadcast to another rank sends the whole buffer.
LINK = (Regime(0, 0.0, 1.0, 0.0),)


@pytest.mark.parametrize(
    ("ready_shares", "takes", "step"),
    [
        ((), (), 10),
        ((0.5, 1.0), (0.0, 0.0), 10),
        # What ends before the computation is not exposed.
        ((0.5, 1.0), (1.0, 1.0), 11),
        ((0.5, 1.0), (1.0, 3.0), 13),
        # The second waits for the first, the third for its gradients.
        ((0.5, 1.0), (8.0, 3.0), 16),
        ((0.1, 0.2, 0.9), (4.0, 1.0, 2.0), 11),
        ((0.1, 0.2, 0.3), (4.0, 4.0, 4.0), 13),
    ],
)
def test_an_exchange_waits_for_its_gradients_and_for_the_one_before_and_a_step_for_the_last(ready_shares, takes, step):
    exchanges = [Exchange(share, seconds, "broadcast") for share, seconds in zip(ready_shares, takes, strict=True)]
    assert model.overlapped_seconds(10.0, exchanges, "ring", 2, Machine(1, LINK, LINK)) == step

"""What each rank holds of parameters, gradients and optimizer state: what sharding promises."""

import pytest

from common import workloads
from common.backends import declared, file_of, settings_of
from common.config import Settings
from common.cost import memory_forecast, sharing
from common.cost.memory_forecast import Training
from common.model.families import Cnn
from common.workloads import gradient_bytes
from launch.report import volumes
from tests.support.agreement_runs import MEMORY
from tests.support.contract import HELD, named
from tests.support.made_records import typed

pytestmark = pytest.mark.matrix

WHOLE_BYTES = gradient_bytes(workloads.resolve(Settings(), 2))


def is_forecast(name):
    """Whether there is a forecast of a backend: not of a server's worker, nor where a library frees the gradients within the step."""
    _, gradients, _ = HELD[name].get("after_step", (1, 1, 1))
    return gradients > 0 and not declared()[file_of(name)].num_servers


@pytest.mark.parametrize("name", [name for name in HELD if is_forecast(name)])
def test_the_forecast_is_what_the_rank_with_most_holds_after_a_step(name, trained):
    settings = workloads.resolve(settings_of(name, Settings()), 2)
    training = Training(Cnn(), 8, optimizer=settings.optimizer, momentum=settings.momentum, device="cpu")
    record, _ = trained(name, 2, MEMORY)
    held = record["tensor_bytes_by_rank"]["after_step"]
    for rank, forecast in enumerate(memory_forecast.by_rank(name, training, 2)):
        ranks = [rank] if declared()[file_of(name)].pipelined else range(2)
        for part in sharing.PARTS:
            assert getattr(forecast, part) == pytest.approx(max(held[part][rank] for rank in ranks), rel=0.01), part


@pytest.mark.parametrize("name", HELD)
def test_a_rank_holds_its_share(name, trained):
    record, _ = trained(name, 2, MEMORY)
    assert record["status"] == "ok", record["error"]
    for point, shares in HELD[name].items():
        held = record["tensor_bytes_by_rank"][point]
        assert [by_rank[0] / WHOLE_BYTES for by_rank in held.values()] == pytest.approx(shares, abs=0.01), point
    (typed_record,) = typed([record])
    theory = volumes.expected_state_bytes(typed_record)
    assert (theory is None) == (sharing.of(name) is None)
    if theory:
        assert volumes.state_bytes(typed_record) / theory == pytest.approx(named("off_theory").get(name, 1), abs=0.01)

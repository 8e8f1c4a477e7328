"""What each rank holds of parameters, gradients and optimizer state: what sharding promises."""

import functools

import pytest

from common import workloads
from common.backends import file_of, settings_of
from common.config import Settings, as_arguments
from common.cost import memory_forecast, sharing
from common.cost.memory_state import Training
from common.model.families import Cnn
from common.workloads import gradient_bytes
from launch.report import volumes
from tests.support import small_data
from tests.support.made_records import typed
from tests.support.running import train_in_turn

pytestmark = [pytest.mark.matrix, pytest.mark.long]

WHOLE_BYTES = gradient_bytes(workloads.resolve(Settings(), 2))
# Rank 0 updates the first dense layer's weight, and rank 1 the rest.
LARGEST = 1_179_648 / 1_199_882
# The first two of four layers are rank 0's stage.
FIRST_STAGE = (320 + 18_496) / 1_199_882
REPLICATED = {"after_forward": (1, 0, 1), "after_backward": (1, 1, 1), "after_step": (1, 1, 1)}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return small_data.write(tmp_path_factory.mktemp("data"), 20)["cnn"]


# What the rank that holds most holds, over what common/cost/sharing.py expects, where that differs: whole parameters are dealt to ranks,
# stage 1 keeps its shard of the gradients only, and stage 3 has them twice.
OFF_THEORY = {"zero_redundancy": 1.193, "deepspeed_zero": 0.833, "deepspeed_zero@3": 1.25}


# By backend or variant.
SHARES = {
    "ddp": REPLICATED,
    "horovod_torch": REPLICATED,
    # TensorFlow frees the gradients within the step.
    "horovod_tf": REPLICATED | {"after_step": (1, 0, 1)},
    "gradient_averaging": REPLICATED,
    "parameter_server": {"after_forward": (1, 0, 0), "after_backward": (1, 1, 0), "after_step": (1, 1, 0)},
    "zero_redundancy": {"after_step": (1, 1, LARGEST)},
    "weight_averaging": REPLICATED,
    "deepspeed_zero@0": REPLICATED,
    # Each rank is a replica of its own.
    "fsdp@hsdp": REPLICATED,
    "fsdp": {"after_forward": (0.5, 0, 0.5), "after_backward": (0.5, 0.5, 0.5), "after_step": (0.5, 0.5, 0.5)},
    # The whole parameters beside the shards.
    "fsdp@keep": {"after_forward": (1.5, 0, 0.5), "after_backward": (0.5, 0.5, 0.5)},
    "pipeline": {"after_forward": (FIRST_STAGE, FIRST_STAGE, FIRST_STAGE), "after_step": (FIRST_STAGE, FIRST_STAGE, FIRST_STAGE)},
    "pipeline@naive": {"after_forward": (FIRST_STAGE, 0, FIRST_STAGE), "after_step": (FIRST_STAGE, FIRST_STAGE, FIRST_STAGE)},
    # Of momentum and of master parameters half each.
    "deepspeed_zero": {"after_step": (1, 0.5, 1)},
    "deepspeed_zero@2": {"after_step": (1, 0.5, 1)},
    # Gradients in DeepSpeed's buffer, and again as those of the master parameters.
    "deepspeed_zero@3": {"after_step": (0.5, 1, 1)},
}


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A function that returns the record of a backend, or a variant; those of a backend train in turn."""

    @functools.cache
    def once(backend):
        names = [name for name in SHARES if file_of(name) == backend]
        fixed = ("none", *data, "--epochs", "1", "--batch-size", "8")
        runs = [(*fixed, *as_arguments(settings_of(name, Settings()))) for name in names]
        found = train_in_turn(backend, 2, tmp_path_factory.mktemp("runs"), runs)
        return {name: record for name, (record, _) in zip(names, found, strict=True)}

    return lambda name: once(file_of(name))[name]


# TensorFlow has no gradients after a step, and the forecast is of no server's worker.
FORECAST = [name for name in SHARES if name not in ("horovod_tf", "parameter_server")]


@pytest.mark.parametrize("name", FORECAST)
def test_the_forecast_is_what_the_rank_with_most_holds_after_a_step(name, trained):
    settings = workloads.resolve(settings_of(name, Settings()), 2)
    training = Training(Cnn(), 8, optimizer=settings.optimizer, momentum=settings.momentum, device="cpu")
    held = trained(name)["tensor_bytes_by_rank"]["after_step"]
    for rank, one in enumerate(memory_forecast.by_rank(name, training, 2)):
        ranks = [rank] if "pipeline" in name else range(2)
        for part in sharing.PARTS:
            assert getattr(one, part) == pytest.approx(max(held[part][rank] for rank in ranks), rel=0.01), part


@pytest.mark.parametrize(("name", "expected"), SHARES.items())
def test_a_rank_holds_its_share(name, expected, trained):
    record = trained(name)
    assert record["status"] == "ok", record["error"]
    for point, shares in expected.items():
        held = record["tensor_bytes_by_rank"][point]
        assert [held[what][0] / WHOLE_BYTES for what in held] == pytest.approx(shares, abs=0.01), point
    (typed_record,) = typed([record])
    theory = volumes.expected_state_bytes(typed_record)
    assert (theory is None) == (sharing.of(name) is None)
    if theory:
        assert volumes.state_bytes(typed_record) / theory == pytest.approx(OFF_THEORY.get(name, 1), abs=0.01)

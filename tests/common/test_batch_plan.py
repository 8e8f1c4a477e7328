"""Global, local and micro-batches follow from the batch size, and nothing divides by ranks that share a shard."""

import pytest

from common import workloads
from common.batch_plan import BatchPlan, plan_batch
from common.config import Settings
from tests.support.mistakes import refused


@pytest.mark.parametrize(
    ("scaling", "accumulate", "degree", "expected"),
    [
        ("weak", 1, 1, BatchPlan(16, 16, 16, 1)),
        ("weak", 1, 4, BatchPlan(64, 16, 16, 4)),
        ("strong", 1, 4, BatchPlan(16, 4, 4, 4)),
        ("weak", 3, 4, BatchPlan(192, 48, 16, 4)),
        ("strong", 3, 4, BatchPlan(48, 12, 4, 4)),
    ],
)
def test_the_batch_of_a_step_is_divided_over_shards_and_micro_batches(scaling, accumulate, degree, expected):
    assert plan_batch(16, accumulate, scaling, degree) == expected
    assert workloads.batch_plan(Settings(batch_size=16, scaling=scaling, accumulate=accumulate), degree) == expected


def test_the_batch_size_of_the_workload_is_taken_where_none_is_given():
    assert workloads.batch_plan(Settings(), 2).micro_batch == workloads.WORKLOADS["cnn"].batch_size


def test_shards_that_are_not_equal_are_refused():
    with refused("a global batch of 10 is not divisible into 3 equal shards; make --batch-size a multiple of 3"):
        plan_batch(10, 4, "strong", 3)

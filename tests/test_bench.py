"""The benchmarks' pure parts, and that each backend has its vendor's loop."""

import pytest

from common import workloads
from common.config import Settings
from tests.bench import fused, trace_overhead
from tests.bench.vendor import BACKENDS, rate_in, summary
from tests.support.running import ROOT


def test_rate_is_found_among_what_libraries_print():
    assert rate_in("[2026] [INFO] engine\nsamples_per_second: 1604.5\nbye\n") == 1604.5


@pytest.mark.parametrize("output", ["", "samples_per_second: nan\n", "rank 0: samples_per_second: 3.0\n"])
def test_no_rate_is_none(output):
    assert rate_in(output) is None


def test_summary_gives_median_and_range():
    assert summary([1.5, 0.5, 1.0]) == "ours / vendor's: 1.00 (from 0.50 to 1.50)"


@pytest.mark.parametrize("backend", BACKENDS)
def test_backend_is_there_as_ours_and_as_its_vendors(backend):
    assert (ROOT / "frameworks" / f"{backend}.py").is_file()
    assert (ROOT / "tests" / "bench" / "vendor_loops" / f"{backend}.py").is_file()


def test_overhead_is_the_median_of_the_differences_within_rounds():
    found = {"without": {"MPI_Test": [10.0, 30.0, 20.0]}, "counting": {"MPI_Test": [60.0, 95.0, 60.0]}}
    assert trace_overhead.overheads(found, "counting") == {"MPI_Test": 50.0}


@pytest.mark.matrix
def test_counting_a_call_costs_less_than_200_ns():
    found = trace_overhead.measure(num_calls=300_000, num_rounds=5)
    for routine, without in found["without"].items():
        # The least of each: what else runs on this machine only adds.
        assert 0 < min(found["counting"][routine]) - min(without) < trace_overhead.LIMIT_NANOSECONDS
        assert min(found["events"][routine]) - min(without) < 2 * trace_overhead.LIMIT_NANOSECONDS


def test_rounds_have_a_median_and_quartiles():
    assert fused.summary([(2.0, 2.0), (1.0, 2.0), (6.0, 2.0), (4.0, 2.0), (5.0, 2.0)]) == "2.000 (1.000 to 2.500)"


@pytest.mark.parametrize("optimizer", fused.OPTIMIZERS)
def test_one_of_two_trainers_is_fused(optimizer):
    settings = workloads.resolve(Settings(optimizer=optimizer), 1)
    for is_fused in (False, True):
        (group,) = fused.trainer_with(settings, is_fused).optimizer.param_groups
        assert bool(group["fused"]) == is_fused

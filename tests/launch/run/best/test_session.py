"""The searches of a matrix: which jobs they are of, which run each trial is, and the records that they keep out of comparisons."""

import pytest

from common import backends, config
from common.config import Settings
from launch import matrix
from launch.report import entries
from launch.run.best import session
from launch.run.best.search import Measured, Trial
from launch.run.plan import plan
from tests.support.made_records import ended, made, typed
from tests.support.mistakes import refused

OPTIONS = session.Options(num_pairs=2, time_limit_seconds=60.0, limit_bytes=8e9)


def jobs_of(*names, num_ranks=2, **settings):
    return plan(names, ["cnn"], [num_ranks], 6, None, Settings(**settings), with_controls=True)


def test_each_backend_is_searched_once_whatever_the_repeats_and_controls():
    assert [job.backend for job in jobs_of("ddp", "horovod_torch") if not session.is_repeat(job)] == ["ddp", "horovod_torch"]


@pytest.mark.parametrize(("scaling", "ratio", "factor"), [("weak", 2, 4.0), ("strong", 1, 2.0)])
def test_a_whole_training_scales_the_learning_rate_with_the_batch_and_other_runs_are_of_one_epoch(scaling, ratio, factor):
    job = jobs_of("ddp", scaling=scaling)[0]
    cell = session.cell_of(job, OPTIONS)
    assert (cell.default_batch, cell.batch_ratio, cell.limit_bytes, cell.has_target) == (16, ratio, 8e9, True)
    assert cell.settings[0] == "gradient_as_bucket_view=True"
    trial = Trial(32, "bucket_cap_mb=1")
    search = session.made(job, trial, "now").settings
    assert (search.epochs, search.batch_size, search.library_setting, search.stop_at_target) == (1, 32, "bucket_cap_mb=1", False)
    assert search.run_id == "now-cnn-ddp-n2-b32-bucket_cap_mb-1-search0"
    config.check(search)
    solution = session.made(job, trial._replace(purpose="solution"), "now").settings
    assert (solution.epochs, solution.learning_rate_factor, solution.stop_at_target) == (None, factor, True)


@pytest.mark.parametrize("name", [name for name, backend in backends.declared().items() if backend.library_settings])
def test_each_setting_of_a_library_is_a_value_that_a_run_takes_for_its_backend_alone(name):
    for setting in backends.settings_of_library(name):
        settings = Settings(library_setting=setting)
        config.check(settings)
        assert backends.name_of(name, settings) == name
        ((key, value),) = config.library_setting(settings).items()
        assert value in backends.declared()[name].library_settings[key]
        with refused(f"--library-setting {setting} is not for single; choose from: none"):
            backends.name_of("single", settings)


def test_the_records_of_a_search_are_in_no_comparison():
    records = typed([made(), made(repeat=1, settings={"library_setting": "none", "batch_size": 64}, workload_digest="e" * 64)])
    assert entries.split_traced(records) == (records[:1], [])


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            made(num_ranks=2, samples_per_second=100.0, peak_memory_bytes_by_rank=[5, 7], time_to_solution_seconds=3.0),
            Measured(100.0, 7, 3.0),
        ),
        (ended("failed"), Measured(None)),
    ],
)
def test_a_record_gives_throughput_and_the_memory_of_the_rank_with_most(record, expected):
    (typed_record,) = typed([record])
    assert session.of_record(typed_record) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory_limit": "8GB"}, "--memory-limit is for --best; leave it out"),
        ({"memory_limit": "much", "best": True}, "--memory-limit is 'much'; give the memory of a rank, such as 80GB"),
    ],
)
def test_a_memory_limit_is_a_size_of_a_search(options, message):
    with refused(message):
        matrix.best_options(matrix.Matrix(**options))

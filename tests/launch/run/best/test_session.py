"""The searches of a matrix: which jobs they are of, which run each trial is, and the records that they keep out of comparisons."""

import pytest

from common import backends, config
from common.config import Settings
from common.record import records
from launch import matrix
from launch.launchers.commands import Launcher
from launch.report import entries
from launch.run import runner
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


@pytest.mark.parametrize(("scaling", "ratio"), [("weak", 2), ("strong", 1)])
def test_a_whole_training_scales_the_learning_rate_with_the_batch_and_other_runs_are_of_one_epoch(scaling, ratio):
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
    assert (solution.epochs, solution.learning_rate, solution.stop_at_target) == (None, 2 * 0.004, True)


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


def searching(monkeypatch, tmp_path, most_runs=1000):
    """Searches for ddp at two ranks with made runs, twice as fast with twice the batch up to 64. Returns the trials that were run."""
    run = []

    def measured(job, *_):
        if len(run) == most_runs:
            raise KeyboardInterrupt
        settings = job.settings
        run.append((settings.batch_size, settings.library_setting, settings.run_id.rpartition("-")[2], settings.epochs))
        speed = 1000.0 * min(settings.batch_size, 64) + (settings.library_setting == "bucket_cap_mb=1")
        changes = {"samples_per_second": speed, "samples_per_epoch": 8000, "num_ranks": 2, "time_to_solution_seconds": 2.5}
        (record,) = typed([made(**changes)])
        records.make_folder(records.folder(settings))
        records.write(runner.record_path(job), record)
        return record

    monkeypatch.setattr(session, "measure", measured)
    job = jobs_of("ddp", results=tmp_path, machine="here")[0]
    return run, lambda: session.run([job], "now", Launcher("mpich", "mpiexec"), OPTIONS, matrix.gain_of)


def test_a_search_prints_a_line_for_each_run_and_then_its_table(monkeypatch, tmp_path, capsys):
    run, search = searching(monkeypatch, tmp_path)
    assert search() == 0
    assert run[:4] == [(batch_size, "none", "search0", 1) for batch_size in (16, 32, 64, 128)]
    assert [setting for _, setting, _, _ in run[4:8]] == backends.settings_of_library("ddp")
    best, default = (64, "bucket_cap_mb=1"), (16, "none")
    assert run[8:12] == [(*default, "pair0", 1), (*best, "pair0", 1), (*best, "pair1", 1), (*default, "pair1", 1)]
    assert run[12:] == [(*best, "solution0", None)]
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "best: cnn ddp 2 ranks, batch size 64: 64000 samples/s"
    assert lines[12] == "best: cnn ddp 2 ranks, batch size 64, bucket_cap_mb=1: target reached in 2.50 s"
    (row,) = [line for line in lines if "│ ddp" in line]
    for cell in ("64001", "bucket_cap_mb=1", "4.00", "16000", "a batch of 128 gained no 2 %"):
        assert f" {cell} " in row


def test_an_interrupted_search_shows_what_it_has_and_makes_no_run_again(monkeypatch, tmp_path, capsys):
    run, search = searching(monkeypatch, tmp_path, most_runs=5)
    with pytest.raises(KeyboardInterrupt):
        search()
    assert "64000" in capsys.readouterr().out
    again, search = searching(monkeypatch, tmp_path)
    assert search() == 0
    assert not set(run) & set(again)
    assert len(again) == 13 - 5

"""The searches of a matrix: the run that follows, the jobs and records of its runs, and what its table says of them."""

import math

import pytest

from common import backends, config
from common.config import Settings
from common.record import files
from launch.launchers.commands import Launcher
from launch.matrix import gain_of
from launch.report import runs
from launch.run import best, runner
from launch.run.best import Measured, SearchSpace, Trial
from launch.run.plan import plan
from tests.support.made_records import made, typed
from tests.support.mistakes import refused

SPACE = SearchSpace(
    default_batch=16, settings=("cap=1", "view=True"), batch_ratio=2, num_pairs=0, has_target=False,
)  # fmt: skip


def searched(speed_of, space=SPACE, num_samples=100_000):
    """All runs of a search, by their throughput, which follows from batch size and setting."""
    runs = {}
    while trial := best.next_trial(runs, space):
        speed = speed_of(trial.batch_size, trial.setting)
        runs[trial] = Measured(speed, num_samples=num_samples)
        assert len(runs) < 100
    return runs


def described(runs):
    return [(trial.batch_size, trial.setting) for trial in runs if trial.purpose == "search"]


def saturating(batch_size, setting):
    """Throughput that a batch of 64 no longer raises by 2 %, and one setting does."""
    return {16: 100.0, 32: 150.0, 64: 152.0}[batch_size] * {"none": 1, "cap=1": 0.9, "view=True": 1.1}[setting]


def test_the_batch_doubles_until_it_gains_nothing_and_then_each_setting_is_tried_at_the_fastest():
    runs = searched(saturating)
    assert described(runs) == [(16, "none"), (32, "none"), (64, "none"), (64, "cap=1"), (64, "view=True")]
    assert best.fastest(runs) == Trial(64, "view=True")
    assert best.end_of_batches(runs, SPACE) == "a batch of 64 gained no 2 %"


@pytest.mark.parametrize(
    ("num_samples", "largest"),
    # Four steps of twice the batch.
    [(100_000, 8192), (16 * 2 * 4, 16), (2 * 16 * 2 * 4 - 1, 16), (2 * 16 * 2 * 4, 32)],
)
def test_an_epoch_has_at_least_four_steps(num_samples, largest):
    space = SPACE._replace(settings=())
    runs = searched(lambda batch_size, _: float(batch_size), space, num_samples=num_samples)
    assert max(trial.batch_size for trial in runs) == largest
    assert best.end_of_batches(runs, space) == f"an epoch has {num_samples:,} samples"


@pytest.mark.parametrize(("speed_at_64", "end"), [(None, "a batch of 64 failed"), (30.0, "a batch of 64 gained no 2 %")])
def test_a_batch_that_fails_or_is_slower_ends_the_batches_and_the_one_before_counts(speed_at_64, end):
    runs = searched(lambda batch_size, _: speed_at_64 if batch_size == 64 else float(batch_size))
    assert described(runs) == [(16, "none"), (32, "none"), (64, "none"), (32, "cap=1"), (32, "view=True")]
    assert best.fastest(runs) == Trial(32)
    assert best.end_of_batches(runs, SPACE) == end


def test_a_search_whose_default_fails_ends():
    assert described(searched(lambda *_: None)) == [(16, "none")]
    assert best.row_of("cnn", 2, "ddp", {Trial(16): Measured(None)}, SPACE, gain_of) is None
    assert best.row_of("cnn", 2, "ddp", {}, SPACE, gain_of) is None


def test_the_default_and_the_best_are_repeated_in_turns_and_a_whole_training_ends_the_search():
    runs = list(searched(saturating, SPACE._replace(num_pairs=3, has_target=True)))
    chosen = Trial(64, "view=True")
    assert runs[5:] == [
        Trial(16, purpose="pair"), chosen._replace(purpose="pair"),
        chosen._replace(purpose="pair", repeat=1), Trial(16, purpose="pair", repeat=1),
        Trial(16, purpose="pair", repeat=2), chosen._replace(purpose="pair", repeat=2),
        chosen._replace(purpose="solution"),
    ]  # fmt: skip


def test_where_the_default_is_the_best_nothing_is_repeated():
    runs = searched(lambda batch_size, setting: 100.0 if (batch_size, setting) == (16, "none") else 90.0, SPACE._replace(num_pairs=6))
    assert all(trial.purpose == "search" for trial in runs)


def test_the_gain_is_that_of_the_pairs_and_not_that_of_the_runs_by_which_the_best_was_chosen():
    space, chosen = SPACE._replace(num_pairs=3, has_target=True), Trial(64, "view=True")
    runs = searched(saturating, space)
    for repeat, (below, above) in enumerate([(100.0, 120.0), (200.0, 260.0), (50.0, 61.0)]):
        runs[Trial(16, purpose="pair", repeat=repeat)] = Measured(below)
        runs[chosen._replace(purpose="pair", repeat=repeat)] = Measured(above)
    row = best.row_of("cnn", 2, "ddp", runs, space, gain_of)
    assert row["gain"] == pytest.approx(math.prod((1.2, 1.3, 1.22)) ** (1 / 3))
    low, high = map(float, row["95 % interval"].split(" to "))
    assert low < 1.2 < high
    assert (row["default samples/s"], row["samples/s"]) == (pytest.approx(100.0), pytest.approx(100 * row["gain"]))
    assert (row["--batch-size"], row["setting"], row["time to solution (s)"]) == (64, "view=True", "not reached")
    runs[chosen._replace(purpose="solution")] = Measured(150.0, 3.5)
    # An interrupted pair does not count.
    del runs[Trial(16, purpose="pair", repeat=2)]
    unfinished = best.row_of("cnn", 2, "ddp", runs, space, gain_of)
    assert (unfinished["time to solution (s)"], unfinished["95 % interval"]) == (3.5, None)


def jobs_of(*names, num_ranks=2, **settings):
    return plan(names, ["cnn"], [num_ranks], 6, None, Settings(**settings), with_controls=True)


def test_each_backend_is_searched_once_whatever_the_repeats_and_controls():
    assert [job.backend for job in jobs_of("ddp", "horovod_torch") if not best.is_repeat(job)] == ["ddp", "horovod_torch"]


@pytest.mark.parametrize(("scaling", "ratio"), [("weak", 2), ("strong", 1)])
def test_a_whole_training_scales_the_learning_rate_with_the_batch_and_other_runs_are_of_one_epoch(scaling, ratio):
    job = jobs_of("ddp", scaling=scaling)[0]
    space = best.space_of(job, 2)
    assert (space.default_batch, space.batch_ratio, space.has_target) == (16, ratio, True)
    assert space.settings[0] == "gradient_as_bucket_view=True"
    trial = Trial(32, "bucket_cap_mb=1")
    search = best.job_of(job, trial, "now").settings
    assert (search.epochs, search.batch_size, search.library_setting, search.stop_at_target) == (1, 32, "bucket_cap_mb=1", False)
    assert search.run_id == "now-cnn-ddp-n2-b32-bucket_cap_mb-1-search0"
    config.check(search)
    solution = best.job_of(job, trial._replace(purpose="solution"), "now").settings
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
    assert runs.split(records) == (records[:1], records[1:])


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
        files.make_folder(files.folder(settings))
        files.write(runner.record_path(job), record)
        return record

    monkeypatch.setattr(best, "measure", measured)
    job = jobs_of("ddp", results=tmp_path, machine="here")[0]
    return run, lambda: best.run([job], "now", Launcher("mpich", "mpiexec"), 2, 60.0, gain_of)


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

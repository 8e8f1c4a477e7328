"""A second matrix draws other seeds, unless --seed says which."""

import json
import multiprocessing

import pytest

from common.config import Settings
from launch.run import available, resume, seeds
from launch.run.plan import plan
from tests.support.forked import run_module
from tests.support.made_records import made, repeats, typed

FIRST, SECOND = "20260101-000000", "20260102-000000"


@pytest.mark.parametrize(
    ("earlier", "drawn"),
    [
        ([], [1, 2]),
        (repeats([10.0] * 6, num_ranks=2, stamp=FIRST), [7, 8]),
        ([made(num_ranks=2, stamp=FIRST, seed=20), made(num_ranks=2, stamp=FIRST, seed=3)], [21, 22]),
        # Whoever adds a backend, a size or a workload gives it the seeds of what is there.
        ([made(num_ranks=4), made(backend="fsdp", num_ranks=2), made(num_ranks=2, workload="transformer")], [1, 2]),
        # Its own records, when it is resumed.
        (repeats([10.0] * 2, num_ranks=2, stamp=SECOND), [1, 2]),
    ],
)
def test_seeds_go_on_after_those_of_earlier_matrices_of_the_same_runs(earlier, drawn):
    jobs = plan(["ddp", "horovod_tf"], ["cnn"], (2,), 2, None, Settings())
    # It is resumed, and has not noted its seed.
    first = seeds.first(jobs, SECOND, typed(earlier), {SECOND: {}})
    assert [job.settings.seed for job in seeds.continued(jobs, first)] == [seed for seed in drawn for _ in range(2)]
    note = f"first seed: {drawn[0]}, after those of earlier matrices; --seed 1 repeats these"
    assert seeds.describe(first) == ([] if drawn[0] == 1 else [note])


@pytest.mark.parametrize(
    ("begun", "first"),
    [
        ({}, 1),
        # One that runs now, of the same runs in part, whichever of the two has begun first.
        ({"20260101-000000": {"first_seed": 4, "num_seeds": 3, "runs": [["ddp", "cnn", 2], ["fsdp", "cnn", 2]]}}, 7),
        ({"20260103-000000": {"first_seed": 4, "num_seeds": 3, "runs": [["ddp", "cnn", 2]]}}, 7),
        # Of other runs.
        ({"20260101-000000": {"first_seed": 4, "num_seeds": 3, "runs": [["ddp", "cnn", 4], ["fsdp", "cnn", 2]]}}, 1),
        # It has drawn, and is resumed.
        ({SECOND: {"first_seed": 9}, "20260101-000000": {"first_seed": 12, "num_seeds": 1, "runs": [["ddp", "cnn", 2]]}}, 9),
        # Files that have another origin.
        ({"20260101-000000": {"first_seed": "x", "num_seeds": 3, "runs": [["ddp", "cnn", 2]]}, "a": {"runs": 5}, "b": {}}, 1),
    ],
)
def test_seeds_go_on_after_those_that_other_matrices_have_drawn(begun, first):
    jobs = plan(["ddp", "horovod_tf"], ["cnn"], (2,), 2, None, Settings())
    assert seeds.first(jobs, SECOND, [], begun) == first


def draw(folder, number, drawn):
    jobs, stamp = plan(["ddp"], ["cnn"], (2,), 2, None, Settings()), f"{SECOND}-{number:02}"
    with resume.held(folder, [stamp]) as (_, file), seeds.drawing(folder):
        first = seeds.first(jobs, stamp, [], resume.begun(folder))
        resume.write(file, seeds.noted(jobs, first, 2))
    drawn.put(first)


def test_matrices_that_begin_at_once_draw_different_seeds(tmp_path):
    fork = multiprocessing.get_context("fork")
    drawn = fork.Queue()
    processes = [fork.Process(target=draw, args=(tmp_path, number, drawn), daemon=True) for number in range(20)]
    for process in processes:
        process.start()
    assert sorted(drawn.get(timeout=30) for _ in processes) == list(range(1, 41, 2))
    for process in processes:
        process.join()


@pytest.mark.parametrize(("arguments", "seed"), [([], "--seed 3 "), (["--seed", "1"], ""), (["--seed", "9"], "--seed 9 ")])
def test_a_dry_run_shows_the_seeds(arguments, seed, tmp_path, monkeypatch):
    # Importing the backend takes seconds.
    monkeypatch.setattr(available, "settled", lambda jobs, *_: (jobs, {}))
    (tmp_path / "here").mkdir()
    for repeat in range(2):
        (tmp_path / "here" / f"{repeat}.json").write_text(json.dumps(made(num_ranks=2, repeat=repeat)))
    matrix = ["2", "--backends", "ddp", "--workloads", "cnn", "--results", tmp_path, "--machine", "here", "--dry-run"]
    status, printed, error = run_module("launch.matrix", *matrix, *arguments)
    assert (status, "first seed: 3" in error) == (0, not arguments), error
    assert f"-m frameworks.ddp {seed}--results" in printed

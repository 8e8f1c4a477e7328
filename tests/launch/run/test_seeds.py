"""A second matrix draws other seeds, unless --seed says which."""

import json
import multiprocessing

import pytest

from common.config import Settings
from launch.run import available, resume, seeds
from launch.run.plan import plan
from tests.support.forked import run_module
from tests.support.made_records import made, repeats, typed

FIRST = "20260101-000000"


@pytest.mark.parametrize(
    ("earlier", "drawn"),
    [
        ([], [1, 2]),
        (repeats([10.0] * 6, num_ranks=2, stamp=FIRST), [7, 8]),
        ([made(num_ranks=2, stamp=FIRST, seed=20), made(num_ranks=2, stamp=FIRST, seed=3)], [21, 22]),
        # Whoever adds a backend, a size or a workload gives it the seeds of what is there.
        ([made(num_ranks=4), made(backend="fsdp", num_ranks=2), made(num_ranks=2, workload="transformer")], [1, 2]),
    ],
)
def test_seeds_go_on_after_those_of_earlier_matrices_of_the_same_runs(earlier, drawn):
    jobs = plan(["ddp", "horovod_tf"], ["cnn"], (2,), 2, None, Settings())
    first = seeds.first(jobs, typed(earlier), [])
    assert [job.settings.seed for job in seeds.continued(jobs, first)] == [seed for seed in drawn for _ in range(2)]
    note = f"first seed: {drawn[0]}, after those of earlier matrices; --seed 1 repeats these"
    assert seeds.describe(first) == ([] if drawn[0] == 1 else [note])


@pytest.mark.parametrize(
    ("runs", "first"),
    [
        # The same runs in part.
        ([["ddp", "cnn", 2], ["fsdp", "cnn", 2]], 7),
        ([["ddp", "cnn", 4], ["fsdp", "cnn", 2]], 1),
    ],
)
def test_seeds_go_on_after_those_that_another_matrix_has_drawn(runs, first):
    jobs = plan(["ddp", "horovod_tf"], ["cnn"], (2,), 2, None, Settings())
    assert seeds.first(jobs, [], [resume.Begun({}, FIRST, 4, 3, runs), resume.Begun({}, FIRST, 9, 1, [])]) == first


def draw(folder, number, drawn):
    jobs = plan(["ddp"], ["cnn"], (2,), 2, None, Settings())
    with resume.held(resume.path_of(folder, {"epochs": number})) as file, seeds.drawing(folder):
        first = seeds.first(jobs, [], resume.begun(folder))
        resume.write(file, resume.Begun({}, FIRST, first, 2, seeds.runs_of(jobs)))
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
    monkeypatch.setattr(available, "asked", lambda jobs, *_: (jobs, {}))
    (tmp_path / "here").mkdir()
    for repeat in range(2):
        (tmp_path / "here" / f"{repeat}.json").write_text(json.dumps(made(num_ranks=2, repeat=repeat)))
    matrix = ["2", "--backends", "ddp", "--workloads", "cnn", "--results", tmp_path, "--machine", "here", "--dry-run"]
    status, printed, error = run_module("launch.matrix", *matrix, *arguments)
    assert (status, "first seed: 3" in error) == (0, not arguments), error
    assert f"-m frameworks.ddp {seed}--results" in printed

"""Matrices beside each other in one folder, and --resume: which one is resumed, what of it is run, and the seeds of a new one."""

import json
import os
import threading

import pytest

from common import workloads
from common.config import Settings, as_json
from common.errors import UserError
from common.record import files
from launch.run import resume, runner
from launch.run.plan import plan
from tests.support import kills
from tests.support.forked import run_module
from tests.support.made_records import made, repeats, typed
from tests.support.mistakes import refused
from tests.support.running import FEW_STEPS, matrix, records_in


def jobs_in(folder, **changes):
    return plan(["ddp", "horovod_torch"], ["cnn"], (1, 2), 1, None, Settings(results=folder, machine="here", **changes))


def leave(job, status):
    settings = as_json(workloads.resolve(job.settings, job.num_ranks))
    path = files.folder(job.settings) / f"{job.settings.run_id}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(made() | {"status": status, "settings": settings, "error": "a line"}))


@pytest.mark.parametrize("result", ["ok", "diverged"])
def test_only_runs_with_a_result_of_their_device_are_skipped(result, tmp_path):
    jobs = jobs_in(tmp_path, device="cpu")
    for job, status in zip(jobs, (result, "failed", "started"), strict=False):
        leave(job, status)
    done, missing = resume.divided(jobs)
    assert [record.settings.run_id for record in done] == [jobs[0].settings.run_id]
    assert missing == jobs[1:]
    assert [len(resume.divided(jobs_in(tmp_path, device=device))[1]) for device in ("auto", "cuda")] == [3, 4]


def test_a_run_that_has_kept_a_checkpoint_goes_on_from_it(tmp_path):
    jobs = jobs_in(tmp_path)
    files.checkpoint_folder(jobs[1].settings).mkdir(parents=True)
    assert [job.settings.resume for job in resume.divided(jobs)[1]] == [False, True, False, False]


@pytest.mark.parametrize(("has_result", "num_missing"), [(True, 0), (False, 3)])
def test_controls_run_beside_their_backend_or_not_at_all(has_result, num_missing, tmp_path):
    jobs = plan(["ddp"], ["cnn"], (2,), 1, None, Settings(results=tmp_path, machine="here"), with_controls=True)
    leave(jobs[0], "ok" if has_result else "failed")
    assert [job.settings.control for job in jobs] == [None, "copy", "delayed"]
    assert len(resume.divided(jobs)[1]) == num_missing


def identity_in(folder, sizes=(1, 2), ranks_per_node=None, **changes):
    backends = ["horovod_torch", "ddp"]
    return resume.identity(backends, ["cnn"], sizes, ranks_per_node, Settings(results=folder, machine="here", **changes))


def begin(folder, stamp, **changes):
    """Leaves the file of a matrix with this stamp, and returns its path."""
    identity = identity_in(folder, **changes)
    with resume.locked(path := resume.path_of(folder, identity)) as file:
        resume.write(file, resume.MatrixFile(identity, stamp, 1))
    return path


def test_matrices_are_resumed_by_their_identity_alone_each_as_it_was_begun_last(tmp_path):
    paths = [begin(tmp_path, "a"), begin(tmp_path, "b", sizes=(1,)), begin(tmp_path, "c", epochs=3), begin(tmp_path, "d", ranks_per_node=1)]
    assert len(set(paths)) == 4
    assert begin(tmp_path, "e") == paths[0]
    assert [resume.read(path).stamp for path in paths] == ["e", "b", "c", "d"]
    assert [matrix.stamp for matrix in resume.matrices_in(tmp_path).values()] == ["b", "c", "d", "e"]
    for changes in ({"seed": 2}, {"device": "cuda"}):
        assert resume.read(resume.path_of(tmp_path, identity_in(tmp_path, **changes))) is None


def test_the_reason_for_which_a_new_matrix_begins_is_said(tmp_path):
    for reason in ("", " (a has other sizes, --watchdog-timeout)"):
        message = f"there is no matrix to resume in {tmp_path}{reason}; a new one begins"
        assert resume.describe_none(tmp_path, resume.matrices_in(tmp_path).values(), identity_in(tmp_path)) == message
        begin(tmp_path, "a", sizes=(2,), watchdog_timeout=5.0)


def test_a_matrix_of_before_a_setting_was_there_is_resumed_and_an_empty_file_is_none(tmp_path, capsys):
    identity = identity_in(tmp_path)
    path = resume.path_of(tmp_path, identity)
    del identity["watchdog_timeout"]
    assert resume.path_of(tmp_path, identity) == path
    path.write_text("")
    assert (resume.read(path), resume.matrices_in(tmp_path), capsys.readouterr().err) == (None, {}, "")
    # Opening a pipe would wait for its writer.
    os.mkfifo(tmp_path / f"pipe{resume.ENDING}")
    assert resume.matrices_in(tmp_path) == {}


@pytest.mark.parametrize(
    "content",
    [
        "[1]", '{"stamp": "a"}', "[" * 100_000, {"stamp": "a\x1b[8m"}, {"first_seed": 10**30}, {"identity": []},
    ],
    ids=lambda content: str(content)[:40],
)  # fmt: skip
def test_a_damaged_file_of_a_matrix_is_named_and_left_aside(content, tmp_path, capsys):
    path = begin(tmp_path, "a")
    path.write_text(content if isinstance(content, str) else json.dumps(json.loads(path.read_text()) | content))
    assert resume.matrices_in(tmp_path) == {}
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"left out {path}: no file of a matrix: ")
    assert line.isprintable()


def test_a_second_matrix_of_one_identity_is_refused_and_one_of_another_is_not(tmp_path):
    path, other_path = (resume.path_of(tmp_path, identity_in(tmp_path, **changes)) for changes in ({}, {"epochs": 3}))
    message = f"the same matrix runs with its records in {tmp_path}; wait for it, or give another folder with --results"
    with resume.locked(path), resume.locked(other_path), refused(message), resume.locked(path):
        pass


@pytest.fixture
def running(tmp_path):
    """A process that carries the mark of the first of the jobs."""
    with kills.marked(runner.mark_of(jobs_in(tmp_path)[0]), "sleep", "60") as process:
        yield process


def test_a_run_that_has_not_ended_is_not_run_beside(running, tmp_path):
    with pytest.raises(UserError, match=rf"-ddp-n1-r0\.json has not ended \(pids {running.pid}\)"):
        resume.wait_until_ended(jobs_in(tmp_path), limit_seconds=0.2)
    resume.wait_until_ended(jobs_in(tmp_path / "other"), limit_seconds=0.2)


def test_a_run_that_is_ending_is_waited_for(running, tmp_path):
    threading.Timer(0.5, running.kill).start()
    resume.wait_until_ended(jobs_in(tmp_path), limit_seconds=20)
    assert running.wait(timeout=5) != 0


@pytest.mark.matrix
def test_a_matrix_is_resumed_with_the_repeats_that_it_lacks(light_checkout, tmp_path):
    arguments = ("1", "--workloads", "cnn", "--backends", "light", "--epochs", "1", "--no-step-breakdown", "--resume")
    first = matrix(light_checkout, tmp_path, *arguments, variables=FEW_STEPS)
    assert first.returncode == 0, first.stdout + first.stderr
    (completed,) = (tmp_path / "here").glob("*.json")
    before = completed.read_bytes()
    repeated = matrix(light_checkout, tmp_path, *arguments, "--repeats", "2", variables=FEW_STEPS)
    assert repeated.returncode == 0, repeated.stdout + repeated.stderr
    assert [(record["status"], record["repeat"]) for record in records_in(tmp_path)] == [("ok", 0), ("ok", 1)]
    assert completed.read_bytes() == before
    assert len(list(tmp_path.glob("here/*.matrix"))) == 1
    finished = matrix(light_checkout, tmp_path, *arguments)
    assert (finished.returncode, len(records_in(tmp_path))) == (0, 2)
    assert "have completed; without --resume a new matrix begins" in finished.stdout


@pytest.mark.matrix
def test_two_matrices_that_start_at_once_in_one_folder_end_nobodys_process_and_overwrite_no_record(light_checkout, tmp_path):
    one_epoch = ("--epochs", "1", "--share-machine", "--resume", "--momentum")
    started = [
        kills.start(light_checkout, tmp_path, *one_epoch, momentum, num_ranks=1, backends="light", variables=FEW_STEPS)
        for momentum in ("0.5", "0.8")
    ]
    try:
        printed = [matrix.communicate(timeout=240)[0] for matrix in started]
    finally:
        for matrix in started:
            matrix.terminate()
    assert [matrix.returncode for matrix in started] == [0, 0], printed
    assert sorted((record["status"], record["settings"]["momentum"]) for record in records_in(tmp_path)) == [("ok", 0.5), ("ok", 0.8)]
    assert len(list(tmp_path.glob("here/*.html"))) == len(list(tmp_path.glob("here/*.matrix"))) == 2


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
    first = resume.first_seed(jobs, typed(earlier))
    assert [job.settings.seed for job in resume.named(jobs, FIRST, first)] == [seed for seed in drawn for _ in range(2)]


@pytest.mark.parametrize(("arguments", "seed"), [([], "--seed 3 "), (["--seed", "1"], ""), (["--seed", "9"], "--seed 9 ")])
def test_a_dry_run_shows_the_seeds(arguments, seed, tmp_path):
    (tmp_path / "here").mkdir()
    for repeat in range(2):
        (tmp_path / "here" / f"{repeat}.json").write_text(json.dumps(made(num_ranks=2, repeat=repeat)))
    arguments_of_all = ["2", "--backends", "ddp", "--workloads", "cnn", "--results", tmp_path, "--machine", "here", "--dry-run"]
    status, printed, error = run_module("launch.matrix", *arguments_of_all, *arguments)
    note = "first seed: 3, after those of earlier matrices; --seed 1 repeats these\n"
    assert (status, error) == (0, "" if arguments else note)
    assert f"-m frameworks.ddp {seed}--results" in printed

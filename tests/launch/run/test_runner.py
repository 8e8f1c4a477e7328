"""The status and error of a run from the end of its processes."""

import pytest

from common.config import Settings
from common.errors import UserError
from common.record import records
from launch.launchers.commands import Launcher, Start, shell_command
from launch.run import processes, runner, turns
from launch.run.plan import Job
from launch.run.processes import Outcome
from launch.run.runner import ending_of
from tests.support import made_records
from tests.support.made_records import ENVIRONMENT


@pytest.mark.parametrize(
    ("outcome", "ending"),
    [
        (Outcome(0, False, ["record: there"]), ("ok", None)),
        (Outcome(-15, True, ["error: rank 0: it was ended"]), ("timeout", "ended after the time limit of 30 s")),
        (Outcome(9, False, ["error: rank 1: the cause", "error: rank 0: what came of it"]), ("failed", "rank 1: the cause")),
        (Outcome(9, False, ["Killed"]), ("failed", "ended with exit status 9")),
    ],
)
def test_the_first_error_is_the_cause(outcome, ending):
    assert ending_of(outcome, 30.0) == ending


def test_a_command_is_quoted_as_a_shell_needs_it():
    start = Start(Launcher("torchrun", "run"), 1, 1, 1, ("python", "--data-dir", "it's here"), {"OMP_NUM_THREADS": "1"})
    assert shell_command(start) == """OMP_NUM_THREADS=1 run --nproc-per-node=1 --standalone --data-dir 'it'"'"'s here'"""


@pytest.mark.parametrize(
    ("changes", "found"),
    [({"trace": "mpi"}, None), ({"timeline": True}, None), ({"autotune": True}, None), ({}, ["mpi_events.1.0.bin", "raw"])],
)
def test_a_run_that_is_made_again_does_not_find_the_traces_of_its_earlier_attempt(changes, found, tmp_path, monkeypatch):
    folder = tmp_path / "here" / "run.trace"
    (folder / "raw").mkdir(parents=True)
    (folder / "mpi_events.1.0.bin").touch()
    seen = []

    def start(*_):
        yield from ()
        seen.append(sorted(path.name for path in folder.iterdir()) if folder.exists() else None)
        return Outcome(9, False, ["Killed"])

    monkeypatch.setattr(processes, "run", start)
    monkeypatch.setattr(runner.records, "environment", lambda: ENVIRONMENT)
    job = Job("ddp", 1, 1, Settings(results=tmp_path, machine="here", run_id="run", **changes))
    assert turns.alone(runner.run_job(job, Launcher("mpich", "mpiexec", {}), 30.0, None)).status == "failed"
    assert seen == [found]


def test_a_run_that_ends_without_a_result_has_failed(tmp_path, monkeypatch):
    def end(*_):
        yield from ()
        return Outcome(0, False, [])

    monkeypatch.setattr(processes, "run", end)
    monkeypatch.setattr(runner.records, "environment", lambda: ENVIRONMENT)
    job = Job("ddp", 1, 1, Settings(results=tmp_path, machine="here", run_id="run"))
    (tmp_path / "here").mkdir()
    record = turns.alone(runner.run_job(job, Launcher("mpich", "mpiexec", {}), 30.0, None))
    assert (record.status, bool(record.error)) == ("failed", True)


@pytest.mark.parametrize(
    ("outcome", "launcher_error"),
    [
        (Outcome(0, False, []), None),
        (Outcome(9, False, ["Killed"]), "ended with exit status 9"),
        (Outcome(-15, True, []), "ended after the time limit of 30 s"),
        (
            Outcome(137, False, ["srun: error: n2: task 1: Killed"]),
            "rank 1 was killed by SIGKILL; the kernel killed no process of this node for memory, "
            "and the launcher printed: srun: error: n2: task 1: Killed",
        ),
    ],
)
def test_a_run_that_had_recorded_everything_keeps_it_when_its_launcher_fails_afterwards(outcome, launcher_error, tmp_path, monkeypatch):
    def end(*_):
        yield from ()
        return outcome

    monkeypatch.setattr(processes, "run", end)
    monkeypatch.setattr(runner.out_of_memory, "num_kills", lambda: 3)
    record = made_records.made(num_ranks=2)
    job = Job("ddp", 2, 2, Settings(results=tmp_path, machine="here", run_id="run"))
    (tmp_path / "here").mkdir()
    records.write(runner.record_path(job), *made_records.typed([record]))
    kept = turns.alone(runner.run_job(job, Launcher("mpich", "mpiexec", {}), 30.0, None))
    assert kept == records.read(runner.record_path(job))
    changes = {"launcher_error": launcher_error, "output_tail": outcome.last_lines if launcher_error else None}
    assert records.as_json(kept) == record | changes


def test_traces_that_cannot_be_removed_are_an_error(tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "run.trace").touch()
    job = Job("ddp", 1, 1, Settings(results=tmp_path, machine="here", run_id="run", timeline=True))
    with pytest.raises(UserError, match=r"run\.trace, left by an earlier attempt of this run, cannot be removed"):
        turns.alone(runner.run_job(job, Launcher("mpich", "mpiexec", {}), 30.0, None))

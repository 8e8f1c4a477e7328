"""The status and error of a run from the end of its processes."""

import json
import time

import pytest

from common.config import Settings
from common.errors import UserError
from common.ranks import slurm
from common.ranks.messages import RankEnded
from common.record import files
from common.record.definition import ENDED_BY_JOB
from common.record.parts import Environment
from launch.launchers import batch_systems
from launch.launchers.commands import Launcher
from launch.run import processes, runner, turns
from launch.run.plan import Job
from launch.run.processes import Outcome
from launch.run.runner import ending_of
from tests.support import made_records

NO_TRANSPORT = "[1795663032.37] [n1:30705:0]     ucp_context.c:1643 UCX  ERROR no usable transports/devices (asked rc on all devices)"
WITHOUT_TRANSPORT = (
    "MPI cannot start: UCX has no usable transports/devices (asked rc on all devices); "
    "unset UCX_TLS, or name in it what this node has, such as tcp,sm,self"
)
SRUN = Launcher("srun", "srun", mpi="pmix")
CHOOSE = "srun --mpi=pmix was to join the ranks, and offers none, pmi2; choose what their MPI speaks: mpi = "


@pytest.mark.parametrize(
    ("outcome", "ending"),
    [
        (Outcome(0, False, ["record: there"]), ("ok", None)),
        (Outcome(-15, True, ["error: rank 0: it was ended"]), ("timeout", "ended after the time limit of 30 s")),
        (
            Outcome(9, False, ["Killed", "=   BAD TERMINATION", ""]),
            ("failed", "ended with exit status 9; the last line: Killed"),
        ),
        (
            # As Open MPI frames what it has to say.
            Outcome(1, False, ["MPI_INIT has failed", 74 * "-"]),
            ("failed", "ended with exit status 1; the last line: MPI_INIT has failed"),
        ),
        (
            Outcome(143, False, ["slurmstepd: error: *** STEP 3.0 ON n1 CANCELLED AT 2026-11-24T10:00:00 DUE TO TIME LIMIT ***", "x"]),
            ("failed", ENDED_BY_JOB),
        ),
        (
            Outcome(255, False, ["[mpiexec@n1] HYDU_sock_listen (sock.c:81): no port to bind", "[mpiexec@n1] main (mpiexec.c:266): error"]),
            ("failed", "mpiexec finds no free port to listen at; widen or unset MPIEXEC_PORT_RANGE"),
        ),
        (Outcome(143, False, [NO_TRANSPORT, "Abort(1): Fatal error"]), ("failed", WITHOUT_TRANSPORT)),
    ],
)
def test_the_cause_without_a_report_of_a_rank(outcome, ending):
    assert ending_of(outcome, 30.0, Launcher("mpich", "mpiexec")) == ending


TERMINATED = RankEnded("rank 1: ended by SIGTERM", is_cause=False)
BROKEN = RankEnded("rank 0: connection closed")
KILLED = ["=   PID 7 RUNNING AT vm", "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)"]


@pytest.mark.parametrize(
    ("messages", "lines", "error"),
    [
        ([TERMINATED, BROKEN], [], TERMINATED.error),
        ([BROKEN, TERMINATED], [], BROKEN.error),
        # Hydra has killed those that were left.
        ([TERMINATED], KILLED, f"{TERMINATED.error}; then a rank was killed by SIGKILL; "),
        ([TERMINATED], ["srun: error: n2: task 0: Killed"], "rank 0 was killed by SIGKILL; "),
    ],
)
def test_a_signal_that_a_rank_reports_is_the_cause_unless_another_rank_failed_before(messages, lines, error, run):
    def start(*arguments, **_):
        yield from ()
        for message in messages:
            arguments[-2](message)
        return Outcome(15, False, lines)

    record = run(None, start=start)
    assert record.error.startswith(error) if lines else record.error == error


def test_where_a_launcher_ends_ranks_and_its_killed_rank_is_not_read_its_last_line_is_the_cause():
    outcome = Outcome(137, False, ["n1: rank 0 died from signal 9"])
    _, error = ending_of(outcome, 30.0, Launcher("pals", "mpiexec"), [TERMINATED])
    assert error == "ended with exit status 137; the last line: n1: rank 0 died from signal 9"


def test_the_first_error_that_a_rank_sends_is_the_cause_and_none_that_is_printed(run, monkeypatch):
    def start(*arguments, **_):
        yield from ()
        on_message, on_line = arguments[-2:]
        on_line("error: printed by a user's file")
        for error in ("rank 1 on n2: no data", "rank 0: what came of it"):
            on_message(RankEnded(error))
        return Outcome(2, False, ["error: printed by a user's file", NO_TRANSPORT])

    record = run(None, start=start)
    assert (record.status, record.error) == ("failed", "rank 1 on n2: no data")


@pytest.mark.parametrize(
    ("line", "is_of_mpi"),
    [("*** An error occurred in MPI_Init_thread", True), ("srun: error: Invalid MPI type 'pmix', --mpi=list", True), ("Killed", False)],
)
def test_where_mpi_does_not_start_under_srun_its_error_says_what_was_tried_and_what_else_there_is(line, is_of_mpi, monkeypatch):
    monkeypatch.setattr(slurm, "mpi_types", lambda: ["pmix", "none", "pmi2"])
    plain = f"ended with exit status 1; the last line: {line}"
    for launcher, has_choice in ((SRUN, is_of_mpi), (Launcher("mpich", "mpiexec"), False)):
        _, error = ending_of(Outcome(1, False, [line]), 30.0, launcher)
        assert error.startswith(f"{plain}; {CHOOSE}") if has_choice else error == plain


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A function that runs a job whose processes end with an Outcome, and returns its record. `during()` is called while they run."""
    monkeypatch.setattr(runner.environment, "describe", lambda: Environment(**made_records.ENVIRONMENT))
    monkeypatch.setattr(runner.machine, "num_oom_kills", lambda: 3)
    (tmp_path / "here").mkdir()

    def run(outcome, during=lambda: None, num_ranks=1, start=None, **changes):
        def ended(*_, **__):
            yield from ()
            during()
            return outcome

        monkeypatch.setattr(processes, "run", start or ended)
        job = Job("ddp", num_ranks, num_ranks, Settings(results=tmp_path, machine="here", run_id="run", **changes))
        return turns.alone(runner.run_job(job, Launcher("mpich", "mpiexec"), 30.0, None))

    return run


@pytest.mark.parametrize(("seconds_left", "error"), [(None, "interrupted"), (60, "interrupted"), (-1, ENDED_BY_JOB)])
def test_a_run_that_is_interrupted_when_its_job_is_over_was_ended_by_that(seconds_left, error, run, tmp_path, monkeypatch):
    def start(*_, **__):
        yield from ()
        raise KeyboardInterrupt

    monkeypatch.setattr(batch_systems, "end_time", lambda: seconds_left and time.time() + seconds_left)
    with pytest.raises(KeyboardInterrupt):
        run(None, start=start)
    assert files.read(tmp_path / "here" / "run.json").error == error


@pytest.mark.parametrize(
    ("changes", "names"),
    [({"trace": "mpi"}, None), ({"timeline": True}, None), ({}, ["mpi_profile.1.0", "raw"])],
)
def test_a_run_that_is_made_again_does_not_find_the_traces_of_its_earlier_attempt(changes, names, run, tmp_path):
    folder = tmp_path / "here" / "run.trace"
    (folder / "raw").mkdir(parents=True)
    (folder / "mpi_profile.1.0").touch()
    seen = []

    def look():
        seen.append(sorted(path.name for path in folder.iterdir()) if folder.exists() else None)

    assert run(Outcome(9, False, ["Killed"]), look, **changes).status == "failed"
    assert seen == [names]


def test_a_run_gets_the_settings_that_only_a_matrix_takes_from_the_environment(run):
    started = []

    def start(argv, variables, *_, **__):
        yield from ()
        started.append((argv, json.loads(variables["TANDEM_LAUNCH"])["settings"]))
        return Outcome(0, False, [])

    assert run(None, start=start, epochs=3).settings.epochs == 3
    ((argv, settings),) = started
    assert "--epochs" in argv
    assert "--trace" not in argv
    assert settings == {"trace": None}


def test_traces_that_cannot_be_removed_are_an_error(run, tmp_path):
    (tmp_path / "here" / "run.trace").touch()
    with pytest.raises(UserError, match=r"run\.trace, left by an earlier attempt of this run, cannot be removed"):
        run(Outcome(0, False, []), timeline=True)


DIVERGED = made_records.ended("diverged", num_ranks=2)


@pytest.mark.parametrize(
    ("recorded", "outcome", "status", "error"),
    [
        (None, Outcome(0, False, []), "failed", "ended without a result"),
        (None, Outcome(-15, True, []), "timeout", "ended after the time limit of 30 s"),
        (DIVERGED, Outcome(1, False, ["error: rank 1: the loss is nan"]), "diverged", DIVERGED["error"]),
    ],
)
def test_a_run_that_ends_without_a_result_has_failed_timed_out_or_diverged(recorded, outcome, status, error, run, tmp_path):
    path = tmp_path / "here" / "run.json"
    if recorded:
        files.write(path, *made_records.typed([recorded]))
    record = run(outcome, num_ranks=2)
    assert (record.status, record.error) == (status, error)
    assert record == files.read(path)


@pytest.mark.parametrize(
    ("outcome", "launcher_error"),
    [
        (Outcome(0, False, []), None),
        (Outcome(9, False, ["Killed"]), "ended with exit status 9; the last line: Killed"),
        (Outcome(-15, True, []), "ended after the time limit of 30 s"),
        (
            Outcome(137, False, ["srun: error: n2: task 1: Killed"]),
            "rank 1 was killed by SIGKILL; the kernel killed no process of this node for memory, "
            "and the launcher printed: srun: error: n2: task 1: Killed",
        ),
    ],
)
def test_a_run_that_had_recorded_everything_keeps_it_when_its_launcher_fails_afterwards(outcome, launcher_error, run, tmp_path):
    before, path = made_records.made(num_ranks=2), tmp_path / "here" / "run.json"
    files.write(path, *made_records.typed([before]))
    record = run(outcome, num_ranks=2)
    assert record == files.read(path)
    changes = {"launcher_error": launcher_error, "output_tail": outcome.last_lines if launcher_error else None}
    assert files.as_json(record) == before | changes

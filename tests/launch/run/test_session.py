"""What a matrix shows, the end of an allocation, from what its batch system prints, and what is not begun since it would not end before.

Slurm's is really asked in test_slurm.py; PBS cannot be had here.
"""

import io
import shlex
import sys
import time

import pytest
from rich.console import Console

from common.config import Settings
from common.progress import Progress
from launch.launchers import batch_systems
from launch.launchers.commands import ALLOCATIONS, Launcher
from launch.run import session
from launch.run.options import Matrix
from launch.run.plan import Job
from launch.run.session import Display, Estimate, describe, outcome, summary, title
from tests.support.made_records import ended, made, not_reached, typed


def group_of(workload="cnn", num_ranks=1):
    return [Job("ddp", num_ranks, num_ranks, Settings(workload=workload, run_id=f"{workload}-{num_ranks}"))]


@pytest.mark.parametrize(
    ("seconds_left", "seconds_by_size", "expected"),
    [
        (None, {1: 1e6}, [True, True]),
        (1, {}, [True, True]),
        (-1, {}, [False, False]),
        (129, {1: 100, 2: 50}, [False, True]),
        (131, {1: 100, 2: 50}, [True, True]),
        # A size that is not known takes as long as the nearest.
        (129, {1: 10, 4: 100}, [True, True]),
    ],
)
def test_a_group_is_begun_where_1_3_times_the_last_of_its_size_is_left(seconds_left, seconds_by_size, expected, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    estimate = Estimate(8, seconds_left and 1000.0 + seconds_left)
    for num_ranks, seconds in seconds_by_size.items():
        for earlier_and_last in (0.1 * seconds, seconds):
            estimate.add(group_of(num_ranks=num_ranks), earlier_and_last)
    assert [estimate.has_time_for(group_of(num_ranks=num_ranks)) for num_ranks in (1, 2)] == expected


def test_what_has_no_time_is_not_begun_and_the_exit_status_says_that_runs_are_left(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(batch_systems, "end_time", lambda: time.time() - 1)
    assert session.run_all(Matrix(), [], group_of(), Launcher("mpich", "no-such-launcher"), lambda *_: None) == 1
    assert "left, since the allocation would end before them: cnn-1\n" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_what_is_left_is_said_with_the_command(resume, monkeypatch):
    arguments = ["1", "--results", "it's here", *resume]
    monkeypatch.setattr(sys, "argv", ["matrix.py", *arguments])
    runs, command = session.describe_left([*group_of(), *group_of(num_ranks=2)]).splitlines()
    assert runs.endswith(": cnn-1, cnn-2")
    assert shlex.split(command.partition(": ")[2]) == ["launch/matrix.sh", "1", "--results", "it's here", "--resume"]


AT_TEN, HOUR = time.mktime((2026, 11, 24, 10, 0, 0, 0, 0, -1)), 3600
SLURM = "JobId=7 JobName=job\n   RunTime=00:01:00 TimeLimit=01:00:00\n   StartTime=2026-11-24T09:00:00 EndTime={} Deadline=N/A\n"
PBS = "Job Id: 7.host\n    Resource_List.walltime = {}\n    ctime = Mon Nov 23 09:00:00 2026\n    stime = Tue Nov 24 10:00:00 2026\n"


@pytest.mark.parametrize(
    ("variable", "program", "printed", "expected"),
    [
        ("SLURM_JOB_ID", "scontrol", SLURM.format("2026-11-24T10:00:00"), AT_TEN),
        ("SLURM_JOB_ID", "scontrol", SLURM.format("Unknown"), None),
        ("SLURM_JOB_ID", "scontrol", "slurm_load_jobs error: Invalid job id specified", None),
        ("PBS_JOBID", "qstat", PBS.format("01:30:00"), AT_TEN + 1.5 * HOUR),
        ("PBS_JOBID", "qstat", "qstat: Unknown Job Id 7.host", None),
        ("PBS_JOBID", "another", "", None),
    ],
)
def test_the_end_is_what_the_batch_system_prints(variable, program, printed, expected, tmp_path, monkeypatch):
    # No variable of the user changes what it prints.
    (tmp_path / program).write_text(f'#!/bin/sh\n[ "$SLURM_TIME_FORMAT$LC_ALL" = C ] || exit\n/bin/cat <<END\n{printed}\nEND\n')
    (tmp_path / program).chmod(0o755)
    for name in ALLOCATIONS:
        monkeypatch.delenv(name, raising=False)
    batch_systems.end_time.cache_clear()
    assert batch_systems.end_time() is None
    batch_systems.end_time.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(variable, "7")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert batch_systems.end_time() == expected


JOB = Job("ddp", 2, 2, Settings())
HALF = Progress(3, 4, 11, 22, 0.25, 0.875, 50.0)


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


def runs_of(*backends, **fields):
    return [JOB._replace(backend=backend, **fields) for backend in backends]


def shown(terminal):
    """What is shown of a run that has begun and made progress, after a time."""
    stream, clock = io.StringIO(), Clock()
    with Display([JOB] * 5, Estimate(2), Console(file=stream, force_terminal=terminal, width=200), clock) as live:
        live.begin_group(runs_of("ddp"))
        live.begin(JOB)
        clock.seconds = session.PLAIN_INTERVAL_SECONDS - 1
        live.progress(JOB, HALF._replace(step=1))
        clock.seconds = session.PLAIN_INTERVAL_SECONDS + 1
        live.progress(JOB, HALF)
        if terminal:
            live.status._live.refresh()
    return stream.getvalue()


def test_progress_in_words():
    assert describe(HALF) == "epoch 3/4, step 11/22, loss 0.2500, accuracy 0.8750, at most 30 s left"
    assert describe(Progress(1, 4, 0, 22, None, None, 0.0)) == "epoch 1/4, step 0/22"
    assert describe(Progress(4, 4, 22, 22, 0.1, 0.9, 70.0)) == "epoch 4/4, step 22/22, loss 0.1000, accuracy 0.9000"


@pytest.mark.parametrize("terminal", [False, True])
def test_the_control_codes_of_a_name_or_an_error_do_not_reach_the_terminal(terminal):
    stream = io.StringIO()
    with Display([JOB] * 5, Estimate(2), Console(file=stream, force_terminal=terminal, width=200)) as live:
        live.print_line("broke\x1b]0;title\x07")
        live.show("starting\x1b[8m")
        if terminal:
            live.status._live.refresh()
    assert "\x1b]0" not in stream.getvalue()
    assert "\x1b[8m" not in stream.getvalue()


def test_what_is_waited_for_stands_in_the_last_line_of_a_terminal_and_elsewhere_in_a_line_now_and_then():
    assert shown(terminal=False).splitlines() == [
        "0/5 runs in 0 s; starting: cnn ddp 2 ranks",
        f"0/5 runs in 31 s; training: cnn ddp 2 ranks, {describe(HALF)}",
    ]
    assert f"0/5 runs in 31 s; training: cnn ddp 2 ranks, {describe(HALF)}" in shown(terminal=True)


def test_a_group_has_one_line_and_the_time_left_follows_from_it():
    stream, clock = io.StringIO(), Clock()
    live = Display([JOB] * 6, Estimate(2), Console(file=stream, width=200), clock)
    group = runs_of("ddp", "horovod_tf")
    live.begin_group(group)
    for job in group:
        clock.seconds += session.PLAIN_INTERVAL_SECONDS
        live.begin(job)
    clock.seconds += session.PLAIN_INTERVAL_SECONDS
    live.progress(group[0], HALF)
    lines = [line.partition("; ")[2] for line in stream.getvalue().splitlines()]
    assert lines[1] == "starting run 2 of 2: cnn horovod_tf 2 ranks"
    assert lines[2].startswith("training in turns, 2 runs: ")
    clock.seconds = 120.0
    for job, seconds in zip(group, (3.0, 2.0), strict=True):
        live.finish(job, *typed([made(job.backend, 2, seconds=seconds)]))
    live.end_group()
    *_, line = stream.getvalue().splitlines()
    assert line == "[2/6] cnn, repeat 1: 2 runs in 2 min 0 s, of which 1 min 0 s start-up; horovod_tf first at 2 ranks, 2.00 s"
    assert live.how_far() == "2/6 runs in 2 min 0 s, about 4 min 0 s left"
    # With four ranks a core each takes four times as long.
    live.begin_group(runs_of("ddp", num_ranks=8, ranks_per_node=8))
    clock.seconds = 180.0
    assert live.how_far() == "2/6 runs in 3 min 0 s, about 6 min 0 s left"


def test_a_run_that_failed_has_a_line_of_its_own_beside_that_of_its_group():
    stream = io.StringIO()
    live = Display([JOB] * 2, Estimate(2), Console(file=stream, width=200))
    group = runs_of("ddp", "horovod_tf")
    live.begin_group(group)
    for job, record in zip(group, typed([made(num_ranks=2), ended("failed", backend="horovod_tf", num_ranks=2)]), strict=True):
        live.finish(job, record)
    live.end_group()
    assert "[2/2] cnn horovod_tf 2 ranks: failed: it broke\n" in stream.getvalue()
    assert "ddp first at 2 ranks, 10.00 s; 1 did not complete" in stream.getvalue()


def test_times_and_titles_in_words():
    assert [session.duration(seconds) for seconds in (40.4, 185.0, 7800.0)] == ["40 s", "3 min 5 s", "2 h 10 min"]
    kinds = {"": {}, " delayed": {"control": "delayed"}, " traced": {"timeline": True}}
    assert [title(JOB._replace(settings=Settings(**settings))) for settings in kinds.values()] == [
        f"cnn ddp 2 ranks{kind}" for kind in kinds
    ]


def test_a_run_of_a_fixed_length_misses_no_target_and_a_control_is_not_first():
    for stop_at_target, ending in ((True, "; 1 missed the target"), (False, "")):
        (record,) = typed([not_reached(settings={"stop_at_target": stop_at_target})])
        assert summary([record], 20.0, 15.0) == f"cnn, repeat 1: 1 runs in 20 s, of which 15 s start-up{ending}"
    ddp, copy = typed([made(num_ranks=2, seconds=3.0), made(num_ranks=2, seconds=2.0, settings={"control": "copy"})])
    assert summary([copy, ddp], 20.0, 15.0) == "cnn, repeat 1: 2 runs in 20 s, of which 15 s start-up; ddp first at 2 ranks, 3.00 s"


@pytest.mark.parametrize(
    ("record", "line"),
    [
        ({"status": "failed", "error": "it broke"}, "failed: it broke"),
        ({"status": "timeout", "error": "too long"}, "timeout: too long"),
        ({"status": "ok", "launcher_error": None, "reached": True, "target": 0.97, "time_to_solution_seconds": 3.456, "accuracy": 0.975},
         "reached 0.97 in 3.46 s (accuracy 0.9750)"),
        ({"status": "ok", "launcher_error": "exit status 9", "reached": False, "target": 0.97, "accuracy": 0.5, "accuracies": [0.4, 0.5],
          "time_to_solution_seconds": None},
         "not reached 0.97 (accuracy 0.5000 after 2 epochs); then its launcher failed: exit status 9"),
    ],
)  # fmt: skip
def test_how_a_run_ended(record, line):
    assert outcome(typed([made() | record])[0]) == line

"""The end of an allocation, from what its batch system prints, and what is not begun since it would not end before.

Slurm's is really asked in test_slurm.py; PBS cannot be had here.
"""

import shlex
import sys
import time

import pytest

from common.config import Settings
from launch.launchers import batch_systems
from launch.launchers.commands import ALLOCATIONS, Launcher
from launch.run import session
from launch.run.estimate import Estimate
from launch.run.options import Matrix
from launch.run.plan import Job


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

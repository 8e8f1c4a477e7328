"""The end of an allocation, from what its batch system prints. Slurm's is really asked in test_slurm.py; PBS cannot be had here."""

import time

import pytest

from launch.launchers import allocation_end
from launch.launchers.commands import ALLOCATIONS

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
        ("COBALT_JOBID", "qstat", "", None),
    ],
)
def test_the_end_is_what_the_batch_system_prints(variable, program, printed, expected, tmp_path, monkeypatch):
    (tmp_path / program).write_text(f"#!/bin/sh\n/bin/cat <<END\n{printed}\nEND\n")
    (tmp_path / program).chmod(0o755)
    for name in ALLOCATIONS:
        monkeypatch.delenv(name, raising=False)
    assert allocation_end.end() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(variable, "7")
    assert allocation_end.end() == expected

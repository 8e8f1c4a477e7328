"""The end of the allocation around this process, which its batch system is asked for."""

import os
import re
import subprocess
import time

# {variable with the number of an allocation: (command that describes one, the place of its end, format of the time)}.
SLURM_TIME, PBS_TIME = "%Y-%m-%dT%H:%M:%S", "%a %b %d %H:%M:%S %Y"
DESCRIPTIONS = {
    "SLURM_JOB_ID": (("scontrol", "show", "job"), re.compile(r"EndTime=(?P<time>\S+)"), SLURM_TIME),
    "PBS_JOBID": (
        ("qstat", "-f"),
        re.compile(r"Resource_List\.walltime = (?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)(?:.|\n)*\bstime = (?P<time>.+)"),
        PBS_TIME,
    ),
}
ANSWER_SECONDS = 30


def end() -> float | None:
    """Returns the end in seconds since 1970; None outside an allocation, for one without an end, and without an answer to the question."""
    for variable, (command, pattern, time_format) in DESCRIPTIONS.items():
        if name := os.environ.get(variable):
            try:
                process = subprocess.run([*command, name], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
                match = pattern.search(process.stdout)
                if match is None:
                    return None
                return time.mktime(time.strptime(match["time"], time_format)) + _limit_seconds(**match.groupdict())
            except (OSError, subprocess.TimeoutExpired, ValueError):
                return None
    return None


def _limit_seconds(hours: str = "0", minutes: str = "0", seconds: str = "0", **_: str) -> int:
    """Returns the time limit of an allocation whose batch system gives its start."""
    return (int(hours) * 60 + int(minutes)) * 60 + int(seconds)

"""When the allocation around this process ends, as its batch system tells."""

import os
import re
import subprocess
import time

# By the variable that has the number of an allocation: the command that describes one, where it has its end, and how that is written.
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


def end():
    """The end in seconds since 1970; None outside an allocation, for one without an end, and where the batch system does not tell."""
    for variable, (command, pattern, time_format) in DESCRIPTIONS.items():
        if name := os.environ.get(variable):
            try:
                process = subprocess.run([*command, name], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
                match = pattern.search(process.stdout)
                return match and time.mktime(time.strptime(match["time"], time_format)) + _limit_seconds(**match.groupdict())
            except (OSError, subprocess.TimeoutExpired, ValueError):
                return None
    return None


def _limit_seconds(time, hours=0, minutes=0, seconds=0):
    return (int(hours) * 60 + int(minutes)) * 60 + int(seconds)

"""The batch systems: which one is around this process and when its allocation ends, and how a job is written for some of them."""

import functools
import os
import re
import subprocess
import time
from typing import NamedTuple


class BatchSystem(NamedTuple):
    """What is known of a batch system inside a job of it."""

    # The variable with the number of the job, and what to do there so that a launcher knows the nodes.
    variable: str
    remedy: str
    # The command that describes a job, the place of its end, and the format of the time.
    command: tuple[str, ...]
    end: re.Pattern[str]
    time_format: str


BATCH_SYSTEMS = {
    "Slurm": BatchSystem(
        "SLURM_JOB_ID", "put srun into PATH, or give --hosts FILE with the nodes of $SLURM_JOB_NODELIST",
        ("scontrol", "show", "job"), re.compile(r"EndTime=(?P<time>\S+)"), "%Y-%m-%dT%H:%M:%S",
    ),
    "PBS": BatchSystem(
        "PBS_JOBID", 'give --hosts "$PBS_NODEFILE"; where the site has PALS, load its module',
        ("qstat", "-f"),
        re.compile(r"Resource_List\.walltime = (?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)(?:.|\n)*\bstime = (?P<time>.+)"),
        "%a %b %d %H:%M:%S %Y",
    ),
}  # fmt: skip
ANSWER_SECONDS = 30
# By which the command is found and finds its server.
KEPT_VARIABLES = (
    "PATH",
    "LD_LIBRARY_PATH",
    "HOME",
    "TZ",
    "SLURM_CONF",
    "SLURM_CONF_SERVER",
    "SLURM_CLUSTERS",
    "PBS_CONF_FILE",
    "PBS_DEFAULT",
)


class JobSyntax(NamedTuple):
    """How a job is written for a batch system, and submitted. `job_scripts.directives` fills the fields of its templates."""

    # The lines by which each job asks for its nodes, cores and time.
    directives: str
    # The texts by which it asks for the GPUs of a node, in the place of {gpus}, for a queue, in that of {queue}, and for a node_request.
    gpus: str
    queue: str
    # The command that reads a script from standard input and prints the number of the job, among lines of others.
    submit: str
    # The number of a job, which is the last that it prints, as a regular expression of grep -E.
    number: str
    # The option by which a job waits for the end of the one before, however that ends.
    after: str
    node_request: str = ""


JOB_SYNTAXES = {
    "slurm": JobSyntax(
        """#SBATCH --job-name=tandem-{sizes}
#SBATCH --nodes={num_nodes}
#SBATCH --ntasks-per-node={ranks_per_node}
#SBATCH --cpus-per-task={num_cores}
#SBATCH --threads-per-core=1{gpus}{node_request}
#SBATCH --exclusive
#SBATCH --time={hours:02d}:{minutes:02d}:00{queue}
#SBATCH --output=tandem-{sizes}-%j.out
#SBATCH --requeue
#SBATCH --open-mode=append""",
        gpus="\n#SBATCH {gpu_request}", queue="\n#SBATCH {queue_option}={name}", submit="sbatch --parsable",
        number="[0-9]+(;[^ ]+)?", after='"--dependency=afterany:${previous%%;*}"',
        node_request="\n#SBATCH {node_request}",
    ),
    "pbs": JobSyntax(
        """#PBS -N tandem-{sizes}
#PBS -S /bin/bash
#PBS -l select={num_nodes}:{node}
#PBS -l place={placement}
#PBS -l walltime={hours:02d}:{minutes:02d}:00{queue}
#PBS -j oe
#PBS -r y""",
        gpus=":ngpus={ranks_per_node}", queue="\n#PBS -q {name}", submit="qsub", number="[0-9]+(\\[\\])?(\\.[A-Za-z0-9_.-]+)?",
        after='-W "depend=afterany:$previous"',
    ),
}  # fmt: skip


@functools.cache
def end_time() -> float | None:
    """Returns the end in seconds since 1970; None outside an allocation, for one without an end, and without an answer to the question."""
    for system in BATCH_SYSTEMS.values():
        if name := os.environ.get(system.variable):
            try:
                # A user's variables, such as SLURM_TIME_FORMAT, change the format of the answer.
                environ = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ} | {"LC_ALL": "C"}
                process = subprocess.run(
                    [*system.command, name], env=environ, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
                )
                match = system.end.search(process.stdout)
                return match and time.mktime(time.strptime(match["time"], system.time_format)) + _limit_seconds(**match.groupdict())
            except (OSError, subprocess.TimeoutExpired, ValueError):
                return None
    return None


def _limit_seconds(hours: str = "0", minutes: str = "0", seconds: str = "0", **_: str) -> int:
    """Returns the time limit of an allocation whose batch system gives its start."""
    return (int(hours) * 60 + int(minutes)) * 60 + int(seconds)

"""The options of a matrix: its axes, its commands, the settings that its runs share, and how ranks are started."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from common.bounds import POSITIVE, RANKS, REPEATS, THREADS
from common.command_line import Help, Positional, Section
from common.config import SEEDS, Role, Settings
from common.workloads import BY_DEFAULT
from launch.launchers import machine_files
from launch.launchers.batch_systems import JOB_SYNTAXES
from launch.launchers.commands import LAUNCHERS

# Type checkers allow no computed Literal.
if TYPE_CHECKING:
    BatchSystemName = str
else:
    BatchSystemName = Literal[tuple(JOB_SYNTAXES)]


LAUNCHER_HELP = f"{', '.join(LAUNCHERS)}. Default: detected, that of an allocation first."
MACHINE_FILE_HELP = (
    "Settings of this machine's launcher, nodes and network, where no option gives them: "
    f"{', '.join(machine_files.names())} (launch/launchers/machines), or the path of a .toml file."
)


@dataclass(frozen=True)
class RunSettings(Settings):
    """The settings of the runs, of which some have another meaning for a matrix."""

    seed: Annotated[int | None, SEEDS, Role.MAY_DIFFER] = None
    """Seed of the initial parameters and the sample order of the first repeat. Default: 1, or the one after those with which
    earlier matrices in these results have made any of the runs."""
    device: Annotated[Literal["auto", "cpu", "cuda"] | None, Section("machine"), Role.MAY_DIFFER] = None
    """Device; auto: CUDA if there is a GPU, else the CPU, decided once for all runs. A backend that lacks the device is skipped.
    Default: the machine file's, else auto."""
    threads: Annotated[int | None, THREADS] = None
    """Threads on which each rank computes. Default: the machine file's, else 1."""
    resume: Annotated[bool, Section("matrix"), Role.MAY_DIFFER] = False
    """Resume the interrupted matrix of these backends, workloads, sizes and settings in the results, without the runs that have completed;
    where there is none, start one, as for a job that its batch system may requeue."""


@dataclass(frozen=True)
class Matrix:
    """All options of a matrix."""

    sizes: Annotated[tuple[int, ...], Positional, RANKS] = (1, 2)
    """Numbers of ranks."""
    backends: Annotated[str | None, Section("matrix")] = None
    """Backends, separated by commas; a variant is written deepspeed_zero@3 or ddp@mpi. `all`: every backend, without variants.
    Default: single, ddp, deepspeed_zero, tf_mirrored and Horovod's; `single` runs once, at size 1, and not in a matrix of one other
    size."""
    workloads: str = ",".join(BY_DEFAULT)
    """Workloads, separated by commas; files, as --model takes, may be among them."""
    repeats: Annotated[int, REPEATS] = 1
    """Runs of each combination; repeat r has seed + r."""
    best: bool = False
    """Then search, in runs of one epoch, for the largest batch of each backend that fits into memory and gains throughput, and for the
    fastest of a few settings of its library. Print what it reaches with them, beside its default, from --repeats pairs of runs."""
    verify: bool = False
    """Train in float64 with every backend, and compare each loss and evaluation with those of one process at the same global batch; look
    for mistakes in the file too. Without --epochs: an epoch of 20 steps, or of more short ones. Exit status 1 where something is wrong."""
    check: bool = False
    """Start the ranks of each size as a run does, which meet, say where they are and leave. Print what the matrix would use and what would
    go wrong, with its remedy, and train nothing. Exit status 1 where there is a problem."""
    dry_run: bool = False
    """Print the commands and run nothing, also where not all of them could run."""
    print_jobs: BatchSystemName | None = None
    """Print a bash script that submits this matrix to the batch system, each size as a job of its own after the one before, and submit
    nothing. With --device cuda a job asks for a GPU per rank. Its time limit is that of its runs, at most that of --queue, or an hour."""
    one_job: bool = False
    """With --print-jobs: one job for all sizes, on the nodes of the largest, as for a queue that takes one job per user."""
    queue: str | None = None
    """With --print-jobs: the queue of the jobs (Slurm: partition, or the machine file's queue_option), whose time limit the machine file
    may have. Default: that of the batch system."""
    side_by_side: bool = True
    """Run the backends and sizes of a workload and repeat side by side: all are started, then they take short turns, one training while
    the others are stopped, so that all meet the same machine. A size that is oversubscribed has turns of its own. Runs on several nodes,
    and runs that do not fit into memory beside the others, follow one after the other."""
    controls: bool = True
    """With 6 repeats or more, run the first distributed backend twice more at each size of several ranks: as a copy, and delayed by 5 %.
    The report says how its verdicts judge them, and warns where the copy seems different or the delayed one does not seem slower."""
    run: RunSettings = field(default_factory=RunSettings)
    launcher: Annotated[str | None, Section("machine"), Help(LAUNCHER_HELP)] = None
    launcher_args: str | None = None
    """Further arguments of the launcher, in one argument and quoted as for a shell, such as "--account x --comment 'a b'".
    Default: the machine file's."""
    share_machine: bool = False
    """Run beside another matrix or measurement on this machine: each measures the other's load. Default: the second one stops."""
    ranks_per_node: Annotated[int | None, RANKS] = None
    """Ranks on each node at most. Default: the machine file's, else all on one node."""
    hosts: Path | None = None
    """File with the name of a node on each line, for ranks on several nodes outside an allocation. Default: the launcher's own."""
    machine_file: Annotated[str, Help(MACHINE_FILE_HELP)] = "local"
    time_limit: Annotated[float, POSITIVE, Section("timeout")] = 900.0
    """Seconds after which a run is ended and recorded as timed out."""

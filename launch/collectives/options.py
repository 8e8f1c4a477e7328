"""The options of python -m launch.collectives, and what they mean: libraries, collectives and sizes."""

import dataclasses
import importlib.util
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

from common import command_line, config, units
from common.command_line import FROM_0, REPEATS, THREADS
from common.cost.collectives import COLLECTIVES, ELEMENT_BYTES
from common.errors import UserError
from common.help_sections import Section
from common.process.ranks import Ranks
from launch.report.export import files
from launch.run.options import SENDING, NodeOptions, TimeLimit


class Module(NamedTuple):
    """A library's module in frameworks/shared/collectives, the package that it needs, and whether it needs MPI's start, or a GPU."""

    name: str
    package: str
    needs_mpi: bool = False
    needs_gpu: bool = False


# In the order in which they are measured: Horovod ends MPI when it ends.
LIBRARIES = {
    "mpi": Module("mpi", "mpi4py", needs_mpi=True),
    "gloo": Module("torch_distributed", "torch"),
    "nccl": Module("torch_distributed", "torch", needs_gpu=True),
    "horovod_torch": Module("horovod_torch", "horovod", needs_mpi=True),
}
LIBRARIES_HELP = f"{', '.join(LIBRARIES)}, separated by commas. Default: all of them. What cannot run here is skipped with the reason."


@dataclass(frozen=True)
class Measurement:
    """What is measured, and where the results go."""

    ranks: Annotated[int, Section("measurement"), SENDING] = 2
    """Number of ranks. Under a launcher, as in mpiexec -n 4 python -m launch.collectives, leave it out."""
    libraries: Annotated[str | None, tyro.conf.arg(help=LIBRARIES_HELP)] = None
    collectives: Annotated[str | None, tyro.conf.arg(help=f"{', '.join(COLLECTIVES)}, separated by commas. Default: all of them.")] = None
    min_bytes: Annotated[str, tyro.conf.arg(aliases=("-b",))] = "8"
    """Smallest size, such as 8, 64K or 1M, in bytes."""
    max_bytes: Annotated[str, tyro.conf.arg(aliases=("-e",))] = "256M"
    """Largest size. Each is twice the one before."""
    repeats: Annotated[int, REPEATS] = 7
    """Repeats of each measurement, of which the median and the range are shown."""
    json: Path | None = None
    """File for all measurements, and alpha and beta, as JSON."""
    machine: config.MachineName = None
    """Name of this machine in the results. Default: the Slurm cluster's name, else the host name."""
    cores_per_rank: Annotated[int, THREADS] = 1
    """Cores that each rank is bound to, with the threads of its libraries, as a rank of a training is."""
    watchdog_timeout: Annotated[float, Section("timeout"), FROM_0] = 120.0
    """Seconds without progress after which a rank reports a hang and ends all; 0: never."""


# The fields of the last base come first, also in the help.
@dataclass(frozen=True)
class Collectives(NodeOptions, Measurement):
    """What is measured, where, and where the results go."""

    time_limit: Annotated[TimeLimit, Section("timeout")] = 3600.0
    """Seconds after which the ranks are ended."""


# Options of a start, for which it is too late where another launcher has started the ranks.
OF_START = ("ranks", "launcher", "launcher_args", "ranks_per_node", "hosts", "time_limit", "share_machine")


def chosen(text: str | None, choices: Collection[str], kind: str) -> list[str]:
    """Returns the names in a comma-separated list, each once; all choices for None. Raises UserError for an unknown name and for none."""
    names = list(choices) if text is None else list(dict.fromkeys(command_line.names_in(text)))
    if unknown := [name for name in names if name not in choices]:
        raise UserError(f"there is no {kind} {unknown[0]!r}; choose from: {', '.join(choices)}")
    if not names:
        raise UserError(f"no {kind} is named; choose from: {', '.join(choices)}")
    return names


def libraries(options: Collectives) -> list[str]:
    """Returns the names of the libraries, in the order of LIBRARIES."""
    return sorted(chosen(options.libraries, LIBRARIES, "library"), key=list(LIBRARIES).index)


def collectives(options: Collectives) -> list[str]:
    return chosen(options.collectives, COLLECTIVES, "collective")


def sizes(options: Collectives) -> list[int]:
    """Returns the sizes in bytes. Raises UserError where the range contains none."""
    least, most = size_bytes(options.min_bytes, "--min-bytes"), size_bytes(options.max_bytes, "--max-bytes")
    if most < least:
        raise UserError(f"--max-bytes {options.max_bytes} is less than --min-bytes {options.min_bytes}; it must be at least that")
    ascending = [least]
    while 2 * ascending[-1] <= most:
        ascending.append(2 * ascending[-1])
    return ascending


def size_bytes(text: str, option: str) -> int:
    """Returns the bytes of a size such as 8, 64K, 1M or 2GiB. Raises UserError for any other text, and for less than one element."""
    num_bytes = units.size_bytes(text, kilo=1024)
    if num_bytes is None or num_bytes % 1:
        raise UserError(f"{option} is {text!r}; it must be a size in bytes, such as 8, 64K or 256M")
    if num_bytes < ELEMENT_BYTES:
        raise UserError(f"{option} is {text}; it must be at least {ELEMENT_BYTES} bytes, which one element has")
    return int(num_bytes)


def check(options: Collectives, writes: bool = True) -> None:
    """Raises UserError for what cannot work, before any rank is started; if it `writes`, also for a file that cannot be written."""
    libraries(options)
    collectives(options)
    sizes(options)
    if writes:
        files.check_all({"--json": options.json})


def problem(name: str, has_mpi: bool) -> str | None:
    """Describes why a library cannot run, as far as that shows without loading it; None if nothing is known."""
    if importlib.util.find_spec(LIBRARIES[name].package) is None:
        return f"{LIBRARIES[name].package} is not installed"
    if LIBRARIES[name].needs_mpi and not has_mpi:
        return "it needs an MPI launcher"
    return None


def expect_runnable(reasons: Mapping[str, str | None]) -> None:
    """Raises UserError where there is a reason against each library."""
    if all(reasons.values()):
        raise UserError(f"no library can run here: {'; '.join(f'{name}: {reason}' for name, reason in reasons.items())}")


def of_ranks(options: Collectives) -> list[str]:
    """Returns the arguments of the ranks, with paths that hold in any folder."""
    paths: dict[str, Path | str] = {"json": options.json.absolute()} if options.json else {}
    if options.machine_file.endswith(".toml"):
        paths["machine_file"] = str(Path(options.machine_file).absolute())
    default_start = {name: getattr(Collectives, name) for name in OF_START}
    return config.as_arguments(dataclasses.replace(options, **default_start, **paths))


def expect_started(options: Collectives, ranks: Ranks) -> None:
    """Raises UserError for an option of a start where another launcher has started the ranks."""
    for name in OF_START:
        if getattr(options, name) != getattr(Collectives, name):
            raise UserError(f"{ranks.source} has started {ranks.size} ranks; leave {command_line.flag(name)} out")

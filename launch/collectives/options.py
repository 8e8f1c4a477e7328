"""The options of python -m launch.collectives, and what they mean: libraries, collectives and sizes."""

import dataclasses
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

from common import command_line, config, records
from common.collectives import COLLECTIVES, ELEMENT_BYTES
from common.errors import UserError
from launch.launchers import commands
from launch.report.export import files

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


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


@dataclass(frozen=True)
class Collectives:
    """What is measured, where, and where the results go."""

    ranks: int = 2
    """Number of ranks. Under a launcher, as in mpiexec -n 4 python -m launch.collectives, leave it out."""
    libraries: str | None = None
    """mpi, gloo, nccl, horovod_torch, separated by commas. Default: all of them. What cannot run here is skipped with the reason."""
    collectives: str | None = None
    """all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send_recv, barrier, separated by commas. Default: all of them."""
    min_bytes: Annotated[str, tyro.conf.arg(aliases=("-b",))] = "8"
    """Smallest size, such as 8, 64K or 1M, in bytes."""
    max_bytes: Annotated[str, tyro.conf.arg(aliases=("-e",))] = "256M"
    """Largest size."""
    factor: Annotated[int, tyro.conf.arg(aliases=("-f",))] = 2
    """Each size is the one before times this factor."""
    repeats: int = 7
    """Repeats of each measurement, of which the median and the range are shown."""
    json: Path | None = None
    """File for all measurements, and alpha and beta, as JSON."""
    csv: Path | None = None
    """File for all measurements as CSV, one line for each."""
    svg: Path | None = None
    """Folder for a picture of each collective, COLLECTIVE.svg."""
    launcher: str | None = None
    """mpich, openmpi, intel, pals, aprun, srun or torchrun. Default: the machine file's, else detected, in an allocation first."""
    ranks_per_node: int | None = None
    """Ranks on each node at most. Default: the machine file's, else all on one node."""
    hosts: Path | None = None
    """File with the name of a node on each line, for ranks on several nodes outside an allocation. Default: the launcher's own."""
    machine_file: str = "local"
    """Settings of this machine's nodes and network: local, polaris, jsc (launch/launchers/machines), or the path of a .toml file."""
    machine: str | None = None
    """Name of this machine in the results. Default: the Slurm cluster's name, else the host name."""
    cores_per_rank: int = 1
    """Cores that each rank is bound to, with the threads of its libraries, as a rank of a training is."""
    watchdog_timeout: float = 120.0
    """Seconds without progress after which a rank reports a hang and ends all; 0: never."""
    time_limit: float = 3600.0
    """Seconds after which the ranks are ended."""
    share_machine: bool = False
    """Run beside a matrix on this machine. Default: the second one stops."""


# Options of a start, which another launcher has made where it has started the ranks.
OF_START = ("ranks", "launcher", "ranks_per_node", "hosts", "time_limit", "share_machine")
OUTPUTS = ("json", "csv")


def chosen(text, known, what):
    """The names in a comma-separated list, all that are known for None. Raises UserError for an unknown one and for none."""
    names = list(known) if text is None else list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in known:
            raise UserError(f"there is no {what} {name!r}; choose from: {', '.join(known)}")
    if not names:
        raise UserError(f"no {what} is named; choose from: {', '.join(known)}")
    return names


def libraries(options):
    """The names of the libraries, in the order of LIBRARIES."""
    return sorted(chosen(options.libraries, LIBRARIES, "library"), key=list(LIBRARIES).index)


def collectives(options):
    """The names of the collectives."""
    return chosen(options.collectives, COLLECTIVES, "collective")


def sizes(options):
    """The sizes in bytes. Raises UserError for sizes of which there are none."""
    least, most = size_bytes(options.min_bytes, "--min-bytes"), size_bytes(options.max_bytes, "--max-bytes")
    if most < least:
        raise UserError(f"--max-bytes {options.max_bytes} is less than --min-bytes {options.min_bytes}; it must be at least that")
    if options.factor < 2:
        raise UserError(f"--factor is {options.factor}; it must be a whole number from 2")
    found = [least]
    while found[-1] * options.factor <= most:
        found.append(found[-1] * options.factor)
    return found


def size_bytes(text, option):
    """The bytes of a size such as 8, 64K, 1M or 2GiB. Raises UserError for any other text, and for less than one element."""
    parts = re.fullmatch(r"(\d+)\s*([KMG]?)(?:I?B)?", text.strip().upper())
    if not parts:
        raise UserError(f"{option} is {text!r}; it must be a size in bytes, such as 8, 64K or 256M")
    found = int(parts[1]) * UNITS[parts[2]]
    if found < ELEMENT_BYTES:
        raise UserError(f"{option} is {text}; it must be at least {ELEMENT_BYTES} bytes, which one element has")
    return found


def check(options):
    """Raises UserError for what cannot work, before any rank is started."""
    libraries(options)
    collectives(options)
    sizes(options)
    if options.ranks < 2:
        raise UserError(f"--ranks is {options.ranks}; it must be a whole number from 2, since one rank sends nothing")
    for name in ("repeats", "cores_per_rank"):
        if getattr(options, name) < 1:
            raise UserError(f"{command_line.flag(name)} is {getattr(options, name)}; it must be a whole number from 1")
    if options.ranks_per_node is not None and options.ranks_per_node < 1:
        raise UserError(f"--ranks-per-node is {options.ranks_per_node}; it must be a whole number from 1")
    if not options.watchdog_timeout >= 0:
        raise UserError(f"--watchdog-timeout is {options.watchdog_timeout:g}; it must be at least 0 seconds")
    if not options.time_limit > 0:
        raise UserError(f"--time-limit is {options.time_limit:g}; it must be above 0 seconds")


def check_outputs(options):
    """Raises UserError for a file that cannot be written; makes the folder of the pictures."""
    for name in OUTPUTS:
        if path := getattr(options, name):
            files.check(path, command_line.flag(name))
    if options.json and options.csv and options.json.resolve() == options.csv.resolve():
        raise UserError(f"--json and --csv are both {options.json}; name different files")
    if options.svg:
        records.make_folder(options.svg, "pictures", "--svg")


def problem(name, has_mpi):
    """Why a library cannot run, as far as that shows without loading it; None if nothing is known."""
    if importlib.util.find_spec(LIBRARIES[name].package) is None:
        return f"{LIBRARIES[name].package} is not installed"
    if LIBRARIES[name].needs_mpi and not has_mpi:
        return "it needs an MPI launcher"
    return None


def expect_one(reasons, names):
    """Raises UserError where there is a reason, in {name: reason}, against each of the named libraries."""
    if all(reasons.get(name) for name in names):
        raise UserError(f"no library can run here: {'; '.join(f'{name}: {reasons[name]}' for name in names)}")


def of_ranks(options):
    """The arguments of the ranks, with paths that hold in any folder."""
    default = Collectives()
    paths = {name: path.absolute() for name in (*OUTPUTS, "svg") if (path := getattr(options, name))}
    if options.machine_file.endswith(".toml"):
        paths["machine_file"] = str(Path(options.machine_file).absolute())
    return config.as_arguments(dataclasses.replace(options, **{name: getattr(default, name) for name in OF_START}, **paths))


def expect_started(options, ranks):
    """Raises UserError for an option of a start where `ranks` have been started by another launcher."""
    default = Collectives()
    for name in OF_START:
        if getattr(options, name) != getattr(default, name):
            raise UserError(f"{ranks.source} has started {ranks.size} ranks; leave {command_line.flag(name)} out")


def has_mpi(launcher):
    return launcher not in commands.WITHOUT_MPI

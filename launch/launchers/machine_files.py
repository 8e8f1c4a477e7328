"""Machine files: launcher, nodes, GPUs and network of a machine, in launch/launchers/machines/NAME.toml or any .toml file."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, get_type_hints

try:
    import tomllib
except ModuleNotFoundError:
    # Before Python 3.11.
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

from common.bounds import FROM_1, RANKS, THREADS, Pattern
from common.command_line import shortened
from common.config import Settings
from common.declarations import ROOT
from common.errors import UserError
from common.ranks.binding import GPU_ORDER_VARIABLE
from common.ranks.meeting import HOST_SUFFIX_VARIABLE
from common.record.files import first_mistake
from launch.launchers.commands import BY_DEPTH, LAUNCHERS, PYTHON, THREADS_VARIABLE, arguments_in
from launch.launchers.hosts import read_text

FOLDER = ROOT / "launch" / "launchers" / "machines"
GPU_REQUESTS = {"gres": "--gres=gpu:{}", "gpus-per-node": "--gpus-per-node={}", "none": ""}
VARIABLE = Pattern(r"[A-Za-z_][A-Za-z0-9_]*", "letters, digits and _, not a digit first")
# Type checkers allow no computed Literal.
if TYPE_CHECKING:
    LauncherName = str
    GpuRequest = str
    Device = str
else:
    LauncherName = Literal[tuple(LAUNCHERS)]
    GpuRequest = Literal[tuple(GPU_REQUESTS)]
    Device = get_type_hints(Settings)["device"]


@dataclass(frozen=True)
class Queue:
    """What a queue of a machine allows a job."""

    __pydantic_config__: ClassVar = {"strict": True, "extra": "forbid"}

    minutes: Annotated[int | None, FROM_1] = None
    """The longest time of a job."""
    nodes: Annotated[int | None, FROM_1] = None
    """The most nodes of a job."""


@dataclass(frozen=True)
class Machine:
    """The keys of a machine file and their defaults."""

    __pydantic_config__: ClassVar = {"strict": True, "extra": "forbid"}

    launcher: LauncherName | None = None
    """A launcher of launch/launchers/commands.py."""
    launcher_args: str = ""
    """Its further arguments, quoted as for a shell."""
    mpi: str | None = None
    """How srun lets ranks find each other, its --mpi."""
    cpu_bind: str = BY_DEPTH
    """How PALS binds the ranks of a node, its --cpu-bind: depth, or list:1-8:9-16."""
    ranks_per_node: Annotated[int | None, RANKS] = None
    """Maximum ranks per node."""
    threads: Annotated[int, THREADS] = Settings.threads
    """Cores per rank."""
    device: Device = Settings.device
    """auto, cpu or cuda; with cuda a node without a GPU is refused, where auto would train on its cores."""
    gpu_order: Literal["local", "reversed"] = "local"
    """local: local rank 0 uses GPU 0; reversed: the last GPU."""
    gpu_request: GpuRequest = "gres"
    """How a job asks Slurm for the GPUs of a node: by --gres=gpu:4, by --gpus-per-node=4, or not (none), where a node comes with them."""
    node_request: str = ""
    """What a job asks PBS of a node in place of its cores, ranks and GPUs, where the site gives whole nodes: system=polaris. To Slurm it is
    a further option."""
    host_suffix: str = ""
    """Suffix that turns a node's short name into the name of its fast interface."""
    python: str | list[str] | None = None
    """The Python of the ranks, where it is not the environment's: its path, or a command that ends in it, as of a container."""
    prologue: str = ""
    """Lines of bash that every rank runs before it, such as `module load pytorch`."""
    variables: dict[Annotated[str, VARIABLE], str] = field(default_factory=dict)
    """Environment variables for every rank, such as the interface for Gloo and NCCL."""
    queue_option: str = "--partition"
    """The option by which a job names its queue to Slurm."""
    queues: dict[str, Queue] = field(default_factory=dict)


def read(name: str) -> Machine:
    """Reads the Machine of a name in launch/launchers/machines or of the path of a .toml file. Raises UserError for an invalid one."""
    # Imported here, since it takes a tenth of a second.
    from pydantic import TypeAdapter, ValidationError

    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not (os.path.isfile(path) if name.endswith(".toml") else name in names()):
        raise UserError(f"there is no machine {shortened(repr(name))}; choose from: {', '.join(names())}, or give the path of a .toml file")
    try:
        text = json.dumps(tomllib.loads(read_text(path)), default=str)
        machine = TypeAdapter(Machine).validate_json(text)
    except ValidationError as invalid:
        raise UserError(f"{path}: {first_mistake(invalid)}; launch/README.md has the keys and their values") from None
    except (ValueError, RecursionError) as problem:
        raise UserError(f"{path} is not valid TOML: {problem}") from None
    if "\\u0000" in text:
        raise UserError(f"{path} has the character NUL, which no command and no variable can have")
    arguments_in(machine.launcher_args, f"{path}: launcher_args")
    if THREADS_VARIABLE in machine.variables:
        raise UserError(f"{path}: {THREADS_VARIABLE} contradicts --threads, which sets it; write threads = … above [variables]")
    if machine.python is not None and not all(machine.python or [""]):
        raise UserError(f"{path}: python is {machine.python!r}; it must be a path, or the words of a command")
    return machine


def python_of(machine: Machine) -> tuple[str, ...]:
    """Returns the command of the ranks' Python, with the machine's prologue."""
    python = (machine.python,) if isinstance(machine.python, str) else PYTHON if machine.python is None else tuple(machine.python)
    # Only a login shell knows `module` everywhere.
    return ("bash", "-lc", f'{{ {machine.prologue}\n}} && exec "$@"', "bash", *python) if machine.prologue else python


def variables_of(machine: Machine) -> dict[str, str]:
    """Returns the environment variables of every rank: those of the file, and those that have its keys of GPUs and network."""
    by_key = {GPU_ORDER_VARIABLE: machine.gpu_order, HOST_SUFFIX_VARIABLE: machine.host_suffix}
    defaults = (Machine.gpu_order, Machine.host_suffix)
    return {name: value for name, value in by_key.items() if value not in defaults} | machine.variables


def names() -> list[str]:
    """Returns the names of the files in launch/launchers/machines."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))

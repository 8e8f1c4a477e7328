"""Machine files: launcher, nodes, GPUs and network of a machine, in launch/launchers/machines/NAME.toml or any .toml file."""

import dataclasses
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

try:
    import tomllib
except ModuleNotFoundError:
    # Before Python 3.11.
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

from common.bounds import RANKS, THREADS
from common.command_line import declarations
from common.config import Settings
from common.declarations import ROOT
from common.errors import UserError
from common.ranks.binding import GPU_ORDER_VARIABLE
from common.ranks.meeting import HOST_SUFFIX_VARIABLE
from launch.launchers.commands import BY_DEPTH, LAUNCHERS, PYTHON, THREADS_VARIABLE, arguments_in
from launch.launchers.hosts import read_text

FOLDER = ROOT / "launch" / "launchers" / "machines"


@dataclass(frozen=True)
class Machine:
    """The keys of a machine file and their defaults."""

    launcher: str | None = None
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
    device: str = Settings.device
    """auto, cpu or cuda; with cuda a node without a GPU is refused, where auto would train on its cores."""
    gpu_order: str = "local"
    """local: local rank 0 uses GPU 0; reversed: the last GPU."""
    gpu_request: str = "gres"
    """How a job asks Slurm for the GPUs of a node: by --gres=gpu:4, by --gpus-per-node=4, or not (none), where a node comes with them."""
    node_request: str = ""
    """What a job asks PBS of a node in place of its cores, ranks and GPUs, where the site gives whole nodes: system=polaris."""
    host_suffix: str = ""
    """Suffix that turns a node's short name into the name of its fast interface."""
    python: str | list | None = None
    """The Python of the ranks, where it is not the environment's: its path, or a command that ends in it, as of a container."""
    prologue: str = ""
    """Lines of bash that every rank runs before it, such as `module load pytorch`."""
    variables: dict = field(default_factory=dict)
    """Environment variables for every rank, such as the interface for Gloo and NCCL."""
    queue_option: str = "--partition"
    """The option by which a job names its queue to Slurm."""
    queues: dict = field(default_factory=dict)
    """The longest time of a job in each queue, in minutes."""


# The types of each key's value; no value of TOML is None.
KINDS = {name: get_args(hint) or (hint,) for name, hint in get_type_hints(Machine).items()}
TYPE_NAMES = {str: "a string", int: "an integer", list: 'a list, as in ["a", "b"]', dict: "a table, as in [variables]"}
VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
MAX_SHOWN = 100
GPU_REQUESTS = {"gres": "--gres=gpu:{}", "gpus-per-node": "--gpus-per-node={}", "none": ""}
ALLOWED = {
    "launcher": tuple(LAUNCHERS), "gpu_request": tuple(GPU_REQUESTS), "gpu_order": ("local", "reversed"),
    "device": get_args(get_type_hints(Settings)["device"]),
}  # fmt: skip


def read(name: str) -> Machine:
    """Reads the Machine of a name in launch/launchers/machines or of the path of a .toml file. Raises UserError for an invalid one."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not (os.path.isfile(path) if name.endswith(".toml") else name in names()):
        raise UserError(f"there is no machine {_shown(name)}; choose from: {', '.join(names())}, or give the path of a .toml file")
    values = _values_in(path)
    for key, value in values.items():
        if key not in KINDS:
            raise UserError(f"{path}: unknown key {_shown(key)}; the keys of a machine file are: {', '.join(KINDS)}")
        if type(value) not in KINDS[key]:
            kinds = " or ".join(TYPE_NAMES[kind] for kind in KINDS[key] if kind in TYPE_NAMES)
            raise UserError(f"{path}: {key} is {_shown(value)}; it must be {kinds}")
        if key in ALLOWED and value not in ALLOWED[key]:
            raise UserError(f"{path}: {key} is {_shown(value)}; choose from: {', '.join(ALLOWED[key])}")
        for bounds in declarations(Machine)[key]:
            if problem := bounds.problem(value):
                raise UserError(f"{path}: {key} is {_shown(value)}; {problem}")
    arguments_in(values.get("launcher_args", ""), f"{path}: launcher_args")
    _expect_variables(values.get("variables", {}), path)
    _expect_queues(values.get("queues", {}), path)
    machine = Machine(**values)
    if not all(python_of(machine)) or {str} != set(map(type, python_of(machine))):
        raise UserError(f"{path}: python is {_shown(machine.python)}; it must be a path, or the words of a command, as strings")
    return machine


def _expect_variables(variables: dict[str, Any], path: Path) -> None:
    for name, value in variables.items():
        if not VARIABLE.fullmatch(name):
            raise UserError(f"{path}: [variables]: {_shown(name)} is no name of a variable; use letters, digits and _, not a digit first")
        if name == THREADS_VARIABLE:
            raise UserError(f"{path}: {name} contradicts --threads, which sets it; write threads = … above [variables]")
        if type(value) is not str:
            raise UserError(f'{path}: variable {name} is {_shown(value)}; write it as a string: {name} = "…"')


def _expect_queues(queues: dict[str, Any], path: Path) -> None:
    for name, minutes in queues.items():
        if type(minutes) is not int or minutes < 1:
            raise UserError(f"{path}: the queue {_shown(name)} has {_shown(minutes)}; write its longest job in minutes: debug = 30")


def _values_in(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as problem:
        raise UserError(f"{path} is not valid TOML: {problem}") from None


def _shown(value: Any) -> str:
    """Writes a value of TOML for a message, in short."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


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


def applied(machine: Machine, settings: Settings) -> Settings:
    """Returns the settings, with the machine's values for those that are at their default."""
    values = {
        name: getattr(machine, name) for name in KINDS if hasattr(settings, name) and getattr(settings, name) == getattr(Settings, name)
    }
    return dataclasses.replace(settings, **values)

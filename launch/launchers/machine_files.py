"""Machine files: launcher, nodes, GPUs and network of a machine, in launch/launchers/machines/NAME.toml or any .toml file."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args, get_type_hints

try:
    import tomllib
except ModuleNotFoundError:
    # Before Python 3.11.
    import tomli as tomllib

from common.command_line import FROM_1
from common.config import Settings
from common.errors import UserError
from common.record.records import ROOT
from launch.launchers.commands import LAUNCHERS, PYTHON, arguments_in

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
    ranks_per_node: int | None = None
    """Maximum ranks per node."""
    threads: int = Settings.threads
    """Cores per rank."""
    device: str = Settings.device
    """auto, cpu or cuda; with cuda a node without a GPU is refused, where auto would train on its cores."""
    gpu_order: str = Settings.gpu_order
    """local: local rank 0 uses GPU 0; reversed: the last GPU."""
    host_suffix: str = Settings.host_suffix
    """Suffix that turns a node's short name into the name of its fast interface."""
    python: str | list | None = None
    """The Python of the ranks, where it is not the environment's: its path, or a command that ends in it, as of a container."""
    prologue: str = ""
    """Lines of bash that every rank runs before it, such as `module load pytorch`."""
    variables: dict = field(default_factory=dict)
    """Environment variables for every rank, such as the interface for Gloo and NCCL."""


# The types of each key's value; no value of TOML is None.
KINDS = {name: get_args(hint) or (hint,) for name, hint in get_type_hints(Machine).items()}
TYPE_NAMES = {str: "a string", int: "an integer", list: 'a list, as in ["a", "b"]', dict: "a table, as in [variables]"}
ALLOWED = {"launcher": tuple(LAUNCHERS)} | {name: get_args(get_type_hints(Settings)[name]) for name in ("device", "gpu_order")}


def read(name):
    """The Machine of a name in launch/launchers/machines or of the path of a .toml file. Raises UserError for an invalid one."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    try:
        values = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"there is no machine {name!r}; choose from: {', '.join(names())}, or give the path of a .toml file") from None
    except OSError as problem:
        raise UserError(f"{path}: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UserError(f"{path} is not valid TOML: {problem}") from None
    for key, value in values.items():
        if key not in KINDS:
            raise UserError(f"{path}: unknown key {key!r}; the keys of a machine file are: {', '.join(KINDS)}")
        if type(value) not in KINDS[key]:
            kinds = " or ".join(TYPE_NAMES[kind] for kind in KINDS[key] if kind in TYPE_NAMES)
            raise UserError(f"{path}: {key} is {value!r}; it must be {kinds}")
        if key in ALLOWED and value not in ALLOWED[key]:
            raise UserError(f"{path}: {key} is {value!r}; choose from: {', '.join(ALLOWED[key])}")
        if type(value) is int and (problem := FROM_1.problem(value)):
            raise UserError(f"{path}: {key} is {value}; {problem}")
    arguments_in(values.get("launcher_args", ""), f"{path}: launcher_args")
    for variable, value in values.get("variables", {}).items():
        if type(value) is not str:
            raise UserError(f'{path}: variable {variable} is {value!r}; write it as a string: {variable} = "{value}"')
    machine = Machine(**values)
    if not all(python_of(machine)) or {str} != set(map(type, python_of(machine))):
        raise UserError(f"{path}: python is {machine.python!r}; it must be a path, or the words of a command, as strings")
    return machine


def python_of(machine):
    """The command of the ranks' Python, with the machine's prologue."""
    python = (machine.python,) if isinstance(machine.python, str) else PYTHON if machine.python is None else tuple(machine.python)
    # Only a login shell knows `module` everywhere.
    return ("bash", "-lc", f'{{ {machine.prologue}\n}} && exec "$@"', "bash", *python) if machine.prologue else python


def names():
    """The names of the files in launch/launchers/machines."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def applied(machine, settings):
    """The settings, with the machine's values for those that are at their default."""
    values = {
        name: getattr(machine, name) for name in KINDS if hasattr(settings, name) and getattr(settings, name) == getattr(Settings, name)
    }
    return dataclasses.replace(settings, **values)

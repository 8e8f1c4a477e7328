"""Machine files: what a machine's launcher, nodes, GPUs and network want, in launch/machines/NAME.toml or a file of one's own."""

import dataclasses
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from common.config import Settings
from common.errors import UserError
from common.records import ROOT
from launch.launchers import LAUNCHERS

FOLDER = ROOT / "launch" / "machines"


@dataclass(frozen=True)
class Machine:
    """What a machine file may say; what it leaves out is as without it."""

    launcher: str | None = None
    """The launcher: one of launch/launchers.py."""
    ranks_per_node: int | None = None
    """Ranks on each node at most."""
    threads: int = Settings.threads
    """Cores of each rank."""
    gpu_order: str = Settings.gpu_order
    """local: local rank 0 takes GPU 0; reversed: the last GPU."""
    host_suffix: str = Settings.host_suffix
    """What turns a node's short name into that of its fast interface."""
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables for every rank, such as the interface for Gloo and NCCL."""


KINDS = {"launcher": str, "ranks_per_node": int, "threads": int, "gpu_order": str, "host_suffix": str, "variables": dict}
TOLD = {str: "a text in quotes", int: "a whole number", dict: "a table, as in [variables]"}
ALLOWED = {"launcher": tuple(LAUNCHERS), "gpu_order": ("local", "reversed")}


def read(name):
    """The Machine of a name in launch/machines, or of the path of a file. Raises UserError for what cannot be read or be meant."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    try:
        told = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"there is no machine {name!r}; choose from: {', '.join(names())}, or give the path of a .toml file") from None
    except OSError as problem:
        raise UserError(f"{path}: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UserError(f"{path} is no TOML: {problem}") from None
    return machine_of(told, path)


def machine_of(told, path):
    """The Machine that a file's keys and values make. Raises UserError for an unknown key or a value that cannot be."""
    for key, value in told.items():
        if key not in KINDS:
            raise UserError(f"{path}: unknown key {key!r}; a machine file may have: {', '.join(KINDS)}")
        if type(value) is not KINDS[key]:
            raise UserError(f"{path}: {key} is {value!r}; it must be {TOLD[KINDS[key]]}")
        if key in ALLOWED and value not in ALLOWED[key]:
            raise UserError(f"{path}: {key} is {value!r}; choose from: {', '.join(ALLOWED[key])}")
        if KINDS[key] is int and value < 1:
            raise UserError(f"{path}: {key} is {value}; it must be a whole number from 1")
    for variable, value in told.get("variables", {}).items():
        if type(value) is not str:
            raise UserError(f'{path}: variable {variable} is {value!r}; write it in quotes, as in {variable} = "{value}"')
    return Machine(**told)


def names():
    """The machines that have a file in launch/machines."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def applied(machine, settings):
    """The settings with what the machine file says, but for those that are given otherwise."""
    default = Settings()
    said = {name: getattr(machine, name) for name in ("threads", "gpu_order", "host_suffix")}
    return dataclasses.replace(
        settings, **{name: value for name, value in said.items() if getattr(settings, name) == getattr(default, name)}
    )

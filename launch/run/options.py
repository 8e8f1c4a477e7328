"""The options that programs which start ranks have in common: by which launcher, on which nodes, and for how long."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from common.command_line import POSITIVE, RANKS
from common.declarations import ROOT
from common.help_sections import Section
from launch.launchers import machine_files
from launch.launchers.commands import LAUNCHERS

TimeLimit = Annotated[float, POSITIVE]

LAUNCHER_HELP = f"{', '.join(LAUNCHERS)}. Default: detected, in an allocation of Slurm or PBS first."
MACHINE_FILE_HELP = (
    "Settings of this machine's launcher, nodes and network, where no option gives them: "
    f"{', '.join(machine_files.names())} (launch/launchers/machines), or the path of a .toml file."
)


@dataclass(frozen=True)
class LaunchOptions:
    """How ranks are started on this machine."""

    launcher: Annotated[str | None, Section("machine"), tyro.conf.arg(help=LAUNCHER_HELP)] = None
    launcher_args: str | None = None
    """Further arguments of the launcher, in one argument and quoted as for a shell, such as "--account x --comment 'a b'".
    Default: the machine file's."""
    share_machine: bool = False
    """Run beside another matrix or measurement on this machine: each measures the other's load. Default: the second one stops."""


@dataclass(frozen=True)
class NodeOptions(LaunchOptions):
    """How ranks are started on one node or several."""

    ranks_per_node: Annotated[int | None, RANKS] = None
    """Ranks on each node at most. Default: the machine file's, else all on one node."""
    hosts: Path | None = None
    """File with the name of a node on each line, for ranks on several nodes outside an allocation. Default: the launcher's own."""
    machine_file: Annotated[str, tyro.conf.arg(help=MACHINE_FILE_HELP)] = "local"
    time_limit: Annotated[TimeLimit, Section("timeout")] = 900.0
    """Seconds after which a run is ended and recorded as timed out."""


def seen_from_root(path: Path) -> Path:
    """Returns the path relative to the checkout, where runs start, if it lies inside; an absolute path elsewhere."""
    path = path.absolute()
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path

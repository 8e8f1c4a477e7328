"""MPI profiles as tables: calls, bytes and seconds of each routine, and payload and control where the file has them.

python -m launch.trace.profile FILE…
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Column, Table
from rich.text import Text

from common import command_line
from common.errors import UserError
from launch.report.export import terminal
from launch.trace import mpi_profile

PROGRAM = "python -m launch.trace.profile"


@dataclass(frozen=True)
class Arguments:
    """What to print."""

    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE…")]
    """Profiles of ranks, mpi_profile.JOB.RANK or mpi_profile.JOB.RANK.json, or folders with them; Tandem's, or those of IBM's mpitrace."""


def run(arguments: Arguments) -> int:
    """Prints a table for each profile and returns the exit status. Raises UserError, before it prints, for a file that is not a profile."""
    paths = [path for path_or_folder in arguments.files for path in paths_of(path_or_folder)]
    if not paths:
        raise UserError("no file is given; give files mpi_profile.JOB.RANK, or a folder with them")
    profiles = sorted(((mpi_profile.read(path), path) for path in paths), key=lambda pair: pair[0].rank)
    console = terminal.open_console()
    for profile, path in profiles:
        seconds = f"{profile.communication_seconds:.3f} of {profile.elapsed_seconds:.3f} s in MPI"
        heading = f"rank {profile.rank} of {profile.num_ranks}: {seconds}, from MPI_Init() to {profile.ended} ({path})"
        console.print(Text(heading), soft_wrap=True)
        console.print(table(profile))
        if bandwidth := profile.payload_bytes_per_second():
            console.print(Text(f"payload: {bandwidth / 1e6:.1f} MB/s over its own and completion's seconds"), soft_wrap=True)
        if profile.no_summary_because:
            console.print(Text(f"no summary over all ranks: {profile.no_summary_because}"), soft_wrap=True)
    return 0


def paths_of(path: Path) -> list[Path]:
    """Returns the profiles that a path is or contains. Raises UserError for a folder without any."""
    paths = mpi_profile.find(path) if path.is_dir() else [path]
    if not paths:
        raise UserError(f"{path} has no MPI profile; give a folder with files mpi_profile.JOB.RANK, or such a file")
    return paths


def table(profile: mpi_profile.Profile) -> Table:
    """Makes the table of a profile: its routines, those that took longest first, then NCCL's, then the sums by kind."""
    kinds = {kind: mpi_profile.Routine(kind, sums) for kind, sums in (profile.kinds or {}).items() if sums.num_calls}
    sections = [
        sorted(routines.values(), key=lambda routine: -routine.sums.seconds) for routines in (profile.routines, profile.nccl, kinds)
    ]
    columns = ["calls", "bytes", "seconds"]
    if has_waited := profile.waited_seconds is not None:
        columns.append("waiting (s)")
    if any(routine.control for section in sections for routine in section):
        columns += ["control calls", "control bytes", "control (s)"]
    drawn = Table("routine", *(Column(column, justify="right") for column in columns))
    for section in sections:
        for routine in section:
            waited = [f"{routine.sums.waited_seconds:.3f}"] if has_waited else []
            control = _cells(routine.control) if routine.control and routine.control.num_calls else []
            drawn.add_row(routine.name, *_cells(routine.sums), *waited, *control)
        drawn.add_section()
    return drawn


def _cells(sums: mpi_profile.Sums) -> list[str]:
    return [str(sums.num_calls), f"{sums.size_bytes:.0f}", f"{sums.seconds:.3f}"]


if __name__ == "__main__":
    command_line.main(run, Arguments, PROGRAM, "Prints MPI profiles: calls, bytes and seconds of each routine, by rank.")

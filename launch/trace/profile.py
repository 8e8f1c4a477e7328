"""The MPI profiles of a traced run, of the interposer or of IBM's mpitrace: how ranks come to write them, their reader, sums and tables.

python -m launch.trace.profile FILE…

The layout of profiles is IBM's (github.com/IBM/mpitrace). The older one differs in the rules, "Times and statistics from", and MBytes
for MiB.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from common import command_line, durable
from common.command_line import Help, Positional
from common.config import TRACE_MPI, Settings
from common.declarations import SHELL_PYTHON
from common.errors import UserError
from common.record import files
from common.record.parts import MpiCalls, MpiKinds, MpiOfRank, MpiProfile
from common.terminal import Table, print_tables
from launch.launchers.commands import Launcher
from launch.trace import build

PROGRAM = f"{SHELL_PYTHON} -m launch.trace.profile"
# What separates libraries in LD_PRELOAD (ld.so(8)), which has no escapes.
CUTS_PRELOAD = re.compile(r"[\s:]")
HEAD = re.compile(r"^Data for MPI rank (\d+) of (\d+):(?: \(all communicators\))?$", re.MULTILINE)
TIMES = re.compile(r"^Times (?:and statistics )?from .+? to (.+)\.$", re.MULTILINE)
TABLE = re.compile(r"^(MPI|NCCL) Routine +#calls +avg\. bytes +time\(sec\)$")
ROW = re.compile(r"^(\w+) +(\d+) +([\d.]+) +([\d.]+)$")
KINDS = ("payload", "control", "completion", "other", "io")
KIND_ROW = re.compile(rf"^({'|'.join(KINDS)}) +(\d+) +(\d+) +([\d.]+)$")
TOTAL = re.compile(r"^([a-z ]+?) += ([\d.]+) \w+(?: \(including synchronization\))?\.$")
TOTALS = ("total communication time", "total elapsed time", "user cpu time", "system time", "max resident set size")


class Profile(NamedTuple):
    """One rank's profile. `ended` names the end of the measured time: "MPI_Finalize()", or how the program ended without it.

    `communication_seconds` is all time in MPI without MPI-IO. `routines` and `nccl` are by name. `kinds` are the sums of payload, control,
    completion, other and io; None in IBM's files.
    """

    rank: int
    num_ranks: int
    ended: str
    communication_seconds: float
    elapsed_seconds: float
    user_seconds: float
    system_seconds: float
    max_resident_mebibytes: float
    routines: dict[str, MpiCalls]
    nccl: dict[str, MpiCalls]
    kinds: dict[str, MpiCalls] | None

    def payload_bytes_per_second(self) -> float | None:
        """Computes the bytes of payload per second of payload and completion calls; None without such calls."""
        if self.kinds is None:
            return None
        seconds = self.kinds["payload"].seconds + self.kinds["completion"].seconds
        return self.kinds["payload"].size_bytes / seconds if seconds > 0 else None


def launcher_for(settings: Settings, launcher: Launcher) -> Launcher:
    """Returns the launcher with the variables of a traced run. Raises UserError where the interposer is not built."""
    if settings.trace is None:
        return launcher
    library = preloadable(build.installed() if settings.trace == TRACE_MPI else Path(settings.trace).absolute())
    return launcher._replace(variables=launcher.variables | variables(library, files.trace_folder(settings)))


def preloadable(library: Path) -> Path:
    """Returns the library by a path that LD_PRELOAD reads as one path. Raises UserError where there is none."""
    for path in (library, library.resolve()):
        if not CUTS_PRELOAD.search(str(path)):
            return path
    raise UserError(f"--trace: LD_PRELOAD cuts the path {str(library)!r} at its space or colon; use a checkout, or a library, without one")


def variables(library: str | Path, folder: Path) -> dict[str, str]:
    """Returns the environment variables of every rank for a profile of each rank in `folder`, beside what is preloaded here."""
    libraries = os.pathsep.join(str(path) for path in (library, os.environ.get("LD_PRELOAD")) if path)
    return {"LD_PRELOAD": libraries, "TRACE_DIR": str(folder), "SAVE_ALL_TASKS": "yes"}


def find(folder: Path) -> list[Path]:
    """Finds the profiles in a folder."""
    return sorted(path for path in folder.glob("mpi_profile.*") if path.suffix[1:].isdecimal())


def read(path: Path) -> Profile:
    """Reads a profile. Raises UserError where the file is not a profile or is truncated."""
    try:
        durable.expect_regular(path)
        text = path.read_text(errors="replace")
    except OSError as problem:
        raise UserError(f"{path}: {problem.strerror}; give a file mpi_profile.JOB.RANK") from None
    head, times, lines = HEAD.search(text), TIMES.search(text), text.splitlines()
    if not head or not times:
        raise UserError(f"{path} is not an MPI profile (no 'Data for MPI rank'); give a file mpi_profile.JOB.RANK")
    try:
        totals = {match[1]: float(match[2]) for line in lines if (match := TOTAL.match(line))}
        routines, nccl = ({name: _sums(*numbers) for name, *numbers in _rows(lines, library)} for library in ("MPI", "NCCL"))
        rows = [match.groups() for line in lines if (match := KIND_ROW.match(line))]
        kinds = {kind: MpiCalls(int(num_calls), int(size_bytes), float(seconds)) for kind, num_calls, size_bytes, seconds in rows}
    except ValueError as problem:
        raise UserError(f"{path} is damaged ({problem}); copy it again") from None
    if not text.endswith("\n") or not totals.keys() >= set(TOTALS) or (kinds and len(kinds) != len(KINDS)):
        raise UserError(f"{path} is truncated after line {len(lines)}; copy it again, unless the run was killed while writing it")
    in_mpi, elapsed, user, system, size = (totals[name] for name in TOTALS)
    return Profile(int(head[1]), int(head[2]), times[1], in_mpi, elapsed, user, system, size, routines, nccl, kinds or None)


def _sums(num_calls: str, average_bytes: str, seconds: str) -> MpiCalls:
    return MpiCalls(int(num_calls), int(num_calls) * float(average_bytes), float(seconds))


def _rows(lines: Iterable[str], library: str) -> list[tuple[str, ...]]:
    """Returns the rows of a library's table of routines, up to the first line that is neither row nor rule."""
    rows, is_in_table = [], False
    for line in lines:
        if match := TABLE.match(line):
            is_in_table = match[1] == library
        elif is_in_table and (match := ROW.match(line)):
            rows.append(match.groups())
        elif not line.startswith("---"):
            is_in_table = False
    return rows


def summary(folder: Path) -> MpiProfile:
    """Summarizes the MPI profiles for the record; kinds and bandwidth only where the library separates payload and control."""
    ranks: dict[str, MpiOfRank] = {}
    problems: list[str] = []
    paths = find(folder)
    for path in paths:
        try:
            of_rank = read(path)
        except UserError as problem:
            problems.append(str(problem))
            continue
        ranks[str(of_rank.rank)] = MpiOfRank(
            communication_seconds=of_rank.communication_seconds,
            kinds=MpiKinds(**of_rank.kinds) if of_rank.kinds else None,
            payload_bytes_per_second=of_rank.payload_bytes_per_second(),
            elapsed_seconds=of_rank.elapsed_seconds,
            ended=of_rank.ended,
        )
    if not paths:
        problems.append(f"{folder} has no MPI profile: no rank called MPI")
    return MpiProfile(ranks, problems)


@dataclass(frozen=True)
class Arguments:
    """What to print."""

    files: Annotated[tuple[Path, ...], Positional, Help(metavar="FILE…")]
    """Profiles of ranks, mpi_profile.JOB.RANK, or folders with them; Tandem's, or those of IBM's mpitrace."""


def run(arguments: Arguments) -> int:
    """Prints a table of the ranks, and the routines of rank 0 and of the ranks of least, median and most time in MPI.

    Returns the exit status. Raises UserError, before it prints, for a file that is not a profile.
    """
    profiles = [read(path) for path_or_folder in arguments.files for path in paths_of(path_or_folder)]
    if not profiles:
        raise UserError("no file is given; give files mpi_profile.JOB.RANK, or a folder with them")
    if len(profiles) > 1:
        print_tables([table_of_ranks(sorted(profiles, key=lambda profile: profile.rank))])
    for profile in selected(profiles):
        bandwidth = profile.payload_bytes_per_second()
        payload = [f"payload: {bandwidth / 1e6:.1f} MB/s over its own and completion's seconds"] if bandwidth else []
        print_tables([table_of_routines(profile)], payload)
    return 0


def paths_of(path: Path) -> list[Path]:
    """Returns the profiles that a path is or contains. Raises UserError for a folder without any."""
    paths = find(path) if path.is_dir() else [path]
    if not paths:
        raise UserError(f"{path} has no MPI profile; give a folder with files mpi_profile.JOB.RANK, or such a file")
    return paths


def selected(profiles: Sequence[Profile]) -> list[Profile]:
    """Selects the profiles of rank 0 and of the ranks of least, median and most time in MPI."""
    ordered = sorted(profiles, key=lambda profile: (profile.communication_seconds, profile.rank))
    ranks = {0, *(ordered[index].rank for index in (0, (len(ordered) - 1) // 2, -1))}
    return sorted((profile for profile in profiles if profile.rank in ranks), key=lambda profile: profile.rank)


def table_of_ranks(profiles: Iterable[Profile]) -> Table:
    """Makes the table of all ranks."""
    columns = ("in MPI (s)", "elapsed (s)", "user (s)", "system (s)", "size (MiB)")
    return Table(
        "", [{"rank": profile.rank} | dict(zip(columns, profile[3:8], strict=True)) | {"up to": profile.ended} for profile in profiles]
    )


def table_of_routines(profile: Profile) -> Table:
    """Makes the table of a profile: its routines, those that took longest first, then NCCL's, then the sums by kind."""
    seconds = f"{profile.communication_seconds:.3f} of {profile.elapsed_seconds:.3f} s in MPI"
    rows = [
        {"routine": name, "calls": sums.num_calls, "bytes": round(sums.size_bytes), "time (ms)": 1000 * sums.seconds}
        for section in (profile.routines, profile.nccl, profile.kinds or {})
        for name, sums in sorted(section.items(), key=lambda item: -item[1].seconds)
        if sums.num_calls
    ]
    return Table(f"rank {profile.rank} of {profile.num_ranks}: {seconds}, up to {profile.ended}", rows)


if __name__ == "__main__":
    command_line.main(run, Arguments, PROGRAM, "Prints MPI profiles: calls, bytes and seconds of each routine, by rank.")

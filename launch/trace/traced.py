"""Traced runs of a matrix: the variables of their ranks, and the summary of their trace files in the record."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from common.config import TRACE_MPI, Settings
from common.errors import UserError
from common.record import files
from common.record.definition import Record
from common.record.parts import MpiCalls, MpiKinds, MpiOfRank, MpiProfile, Timeline
from launch.launchers.commands import Launcher
from launch.trace import build, profile, timeline

# What separates libraries in LD_PRELOAD (ld.so(8)), which has no escapes.
CUTS_PRELOAD = re.compile(r"[\s:]")
T = TypeVar("T")


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


def clear(settings: Settings) -> None:
    """Removes the trace files of an earlier attempt of a run, which would be mistaken for new ones.

    Raises UserError where they cannot be removed.
    """
    folder = files.trace_folder(settings)
    if not (settings.trace or settings.timeline) or not folder.exists():
        return
    try:
        shutil.rmtree(folder)
    except OSError as problem:
        raise UserError(f"{folder}, left by an earlier attempt of this run, cannot be removed ({problem}); remove it") from None


def add_to_record(settings: Settings, record: Record) -> None:
    """Summarizes the trace files of a completed run in its record; what cannot be read, or summed up, is listed as problems."""
    folder = files.trace_folder(settings)
    if settings.trace:
        record.mpi_profile = _summed_up(lambda: profile_summary(folder), lambda problem: MpiProfile({}, [problem]))
    if settings.timeline:
        record.timeline = _summed_up(lambda: merged(folder), lambda problem: Timeline(None, [problem]))


def _summed_up(sum_up: Callable[[], T], of_problem: Callable[[str], T]) -> T:
    """Returns what a function returns, or makes a value of its error: damaged trace files must not end a matrix after a good run."""
    try:
        return sum_up()
    except UserError as problem:
        return of_problem(str(problem))
    except Exception as problem:
        return of_problem(f"the trace files could not be summed up ({type(problem).__name__}: {problem})")


def merged(folder: Path) -> Timeline:
    """Merges the traces of a run and returns what the record has of that."""
    return Timeline(timeline.MERGED, timeline.gather(folder).problems)


def profile_summary(folder: Path) -> MpiProfile:
    """Summarizes the MPI profiles for the record; kinds and bandwidth only where the library separates payload and control."""
    ranks: dict[str, MpiOfRank] = {}
    problems: list[str] = []
    paths = profile.find(folder)
    for path in paths:
        try:
            of_rank = profile.read(path)
        except UserError as problem:
            problems.append(str(problem))
            continue
        calls = {kind: MpiCalls(**sums._asdict()) for kind, sums in (of_rank.kinds or {}).items()}
        ranks[str(of_rank.rank)] = MpiOfRank(
            communication_seconds=of_rank.communication_seconds,
            kinds=MpiKinds(**calls) if calls else None,
            payload_bytes_per_second=of_rank.payload_bytes_per_second(),
            elapsed_seconds=of_rank.elapsed_seconds,
            ended=of_rank.ended,
        )
    if not paths:
        problems.append(f"{folder} has no MPI profile: no rank called MPI")
    return MpiProfile(ranks, problems)

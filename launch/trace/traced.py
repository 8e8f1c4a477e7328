"""The runs of a matrix that are traced or have a timeline: what their ranks need, and what the record tells of what they have left."""

import shutil
from pathlib import Path

from common import records
from common.config import TRACES
from common.errors import UserError
from launch.trace import build, events, preload, profile, sources, timeline

NUM_EVENTS = 100_000


def launcher_for(settings, launcher, preloaded=""):
    """The Launcher with the variables that a run's ranks need besides, if it is traced. `preloaded`: what LD_PRELOAD has already.

    Raises UserError where there is no library to trace with.
    """
    if settings.trace is None:
        return launcher
    library = build.installed() if settings.trace in TRACES else Path(settings.trace).absolute()
    num_events = NUM_EVENTS if settings.trace == "events" else None
    return launcher._replace(
        variables=launcher.variables | preload.variables(library, records.trace_folder(settings), num_events, preloaded=preloaded)
    )


def clear(settings):
    """Removes what an earlier attempt of a run that leaves traces has left in its folder: it would be taken for the new one's.

    Raises UserError where it cannot be removed.
    """
    folder = records.trace_folder(settings)
    if not (settings.trace or settings.timeline or settings.autotune) or not folder.exists():
        return
    try:
        shutil.rmtree(folder)
    except OSError as problem:
        raise UserError(f"{folder}, of an earlier attempt of this run, cannot be removed ({problem}); remove it") from None


def account(settings):
    """{key of the record: what it tells} of a run that has come to its end; where something cannot be read, the problem instead."""
    folder, found = records.trace_folder(settings), {}
    if settings.trace:
        found["mpi_profile"] = mpi_profile(folder)
    if settings.timeline:
        try:
            found["timeline"] = timeline.as_json(timeline.gather(folder, list(mpi_sources(folder))))
        except UserError as problem:
            found["timeline"] = timeline.nothing(problem)
    return found


def mpi_profile(folder):
    """By rank, the seconds in MPI and, as far as the library tells them, payload and control apart: calls, bytes, seconds, bandwidth.

    `problems`: what could not be read, and how many events were dropped.
    """
    ranks, problems = {}, []
    # Our own have all digits in JSON; a site's library writes text alone.
    paths = sorted(folder.glob("mpi_profile.*.json")) or sorted(folder.glob("mpi_profile.*"))
    for path in paths:
        try:
            one = profile.read(path)
        except UserError as problem:
            problems.append(str(problem))
            continue
        ranks[str(one.rank)] = {
            "communication_seconds": one.communication_seconds, "elapsed_seconds": one.elapsed_seconds, "ended": one.ended,
            "kinds": {kind: sums._asdict() for kind, sums in (one.kinds or {}).items()} or None,
            "payload_bytes_per_second": one.payload_bytes_per_second(),
        }  # fmt: skip
    if not paths:
        problems.append(f"{folder} has no MPI profile: no rank called MPI")
    return {"ranks": ranks, "problems": problems + lost_events(folder)}


def lost_events(folder):
    """A line for each rank whose file of MPI events has not got all calls, or cannot be read."""
    problems = []
    for path in sorted(folder.glob("mpi_events.*.bin")):
        try:
            problems.append(events.lost(events.read(path)))
        except UserError as problem:
            problems.append(str(problem))
    return [problem for problem in problems if problem]


def mpi_sources(folder):
    """The sources of the merged trace that the files of MPI events are, of which there may be none."""
    for path in sorted(folder.glob("mpi_events.*.bin")):
        found = events.read(path)
        if not len(found.start_nanoseconds):
            continue
        zero = int(found.start_nanoseconds[0])
        error = found.clock_error_nanoseconds
        source = sources.mpi(events.chrome(found, zero), found.rank, 0.0, None if error is None else error / 1000, zero)
        # Where clocks were compared these are by rank 0's already.
        yield source if error is None else source._replace(rank=0)

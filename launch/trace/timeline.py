"""The trace folder of a run: its parts of a timeline merged into one trace, and what the record has of its files.

python -m launch.trace.timeline FOLDER
"""

import contextlib
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

from common import chrome_trace, command_line
from common.command_line import Positional
from common.config import Settings
from common.declarations import SHELL_PYTHON
from common.errors import UserError
from common.record import files as record_files
from common.record.definition import Record
from common.record.parts import MpiProfile, Timeline
from frameworks.shared.horovod import horovod_timeline
from launch.trace import horovod_summary, profile, sources
from launch.trace.sources import Clock, ClockOfRank, Source

PROGRAM = f"{SHELL_PYTHON} -m launch.trace.timeline"
MERGED = "trace.json.gz"
# The order of a rank's tracks.
KINDS = ("data", "compute", "collectives")
TRACKS_OF_A_KIND = 1000
# Before the first time that the host's clock shows: profilers' clocks were within 0.12 ms of it.
MARGIN_NANOSECONDS = 10**6
T = TypeVar("T")
DAMAGED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


class MergedTrace(NamedTuple):
    """What a merged trace has: its events, the clocks of its sources and of the ranks, and the problems with its parts."""

    num_events: int
    clocks: list[Clock]
    ranks: dict[int, ClockOfRank]
    horovod: horovod_summary.Summary | None
    problems: list[str]


def files(folder: Path, kind: str) -> dict[int, Path]:
    """Finds the parts of a kind (spans or torch) in a folder, by rank."""
    matches = {path: re.fullmatch(rf"{kind}\.(\d+)\.json\.gz", path.name) for path in folder.glob("*.json.gz")}
    return dict(sorted((int(match[1]), path) for path, match in matches.items() if match))


def gather(folder: Path) -> MergedTrace:
    """Merges the parts in a run's folder into trace.json.gz there. Raises UserError where there is nothing to merge.

    What is wrong with a part is listed, and the others are merged.
    """
    problems: list[str] = []
    all_sources: list[Source] = []
    steps: dict[int, sources.Steps] = {}
    for rank, path in files(folder, "spans").items():
        with _listed(problems):
            steps[rank] = sources.steps_of(path, rank)
            all_sources.append(steps[rank].source)
    for rank, path in files(folder, "torch").items():
        with _listed(problems):
            if rank not in steps:
                raise UserError(f"{path} is left out, since the steps of the rank are not there")
            all_sources.append(sources.torch(path, rank, steps[rank], problems.append))
    summary, path = None, folder / horovod_timeline.FILE
    with _listed(problems):
        if path.exists() and path.stat().st_size > 0:
            sums = horovod_summary.Summary()
            all_sources.append(sources.horovod(path, sums, problems.append))
            summary = sums
    if not all_sources:
        reason = f": {'; '.join(problems)}" if problems else ""
        raise UserError(f"{folder} has no timeline, no profile and no steps{reason or '; run with --timeline'}")
    meetings_of_rank_0 = steps[0].meetings if 0 in steps else []
    ranks = {
        rank: sources.clock_of_rank(of_rank.meetings, meetings_of_rank_0) if rank else ClockOfRank(0.0, 0.0)
        for rank, of_rank in steps.items()
    }
    num_events = merge(folder / MERGED, all_sources, ranks, problems)
    return MergedTrace(num_events, [source.clock for source in all_sources], ranks, summary, problems)


@contextlib.contextmanager
def _listed(problems: list[str]) -> Iterator[None]:
    """Within this context what is wrong with a file becomes a problem, so that the others are merged."""
    try:
        yield
    except UserError as problem:
        problems.append(str(problem))


def merge(path: Path, all_sources: Sequence[Source], ranks: Mapping[int, ClockOfRank], problems: list[str]) -> int:
    """Writes the merged trace, gzipped, as a stream: a process per rank, tracks ordered by kind, one clock. Returns its number of events.

    ts 0 is shortly before the first event; the metadata has it as origin_nanoseconds since the epoch. Each source is corrected by the
    clock offset of its rank. What is wrong with an event becomes a problem.
    """
    starts = [_epoch(source, ranks) + int(source.starts_at * 1000) for source in all_sources if source.starts_at is not None]
    origin = min(starts) - MARGIN_NANOSECONDS

    def metadata() -> dict[str, object]:
        clocks = [asdict(source.clock) for source in all_sources]
        return {"origin_nanoseconds": origin, "clocks": clocks, "ranks": {rank: clock._asdict() for rank, clock in ranks.items()}}

    return chrome_trace.write(path, _merged(all_sources, origin, ranks, problems), metadata)


def _merged(
    all_sources: Iterable[Source], origin_nanoseconds: int, ranks: Mapping[int, ClockOfRank], problems: list[str]
) -> Iterator[chrome_trace.Event]:
    """Yields the events of all sources with a pid per rank and a tid per track, and the metadata events with their names."""
    tracks = {}
    for source in all_sources:
        start = (_epoch(source, ranks) - origin_nanoseconds) / 1000
        try:
            for rank, kind, track, event in source.events:
                placed = event | {"pid": rank, "ts": round(event["ts"] + start, 3)}
                if (tid := tracks.get((rank, kind, track))) is None:
                    tid = KINDS.index(kind) * TRACKS_OF_A_KIND + sum(key[:2] == (rank, kind) for key in tracks) + 1
                    if not any(key[0] == rank for key in tracks):
                        yield from _named("process", rank, 0, f"rank {rank}", rank)
                    tracks[rank, kind, track] = tid
                    yield from _named("thread", rank, tid, f"{kind}: {track}", tid)
                yield placed | {"tid": tid}
        except UserError as problem:
            problems.append(str(problem))
        except DAMAGED as problem:
            problems.append(f"{source.clock.source}: an event is damaged ({problem!r}), and the rest is left out")


def _epoch(source: Source, ranks: Mapping[int, ClockOfRank]) -> int:
    """Returns a source's ts 0 on rank 0's clock, in nanoseconds since the epoch."""
    ahead = ranks[source.rank].clock_ahead_microseconds if source.rank in ranks else 0
    return source.origin_nanoseconds - int(ahead * 1000)


def _named(subject: str, rank: int, tid: int, name: str, index: int) -> Iterator[chrome_trace.Event]:
    metadata = {"ph": "M", "ts": 0, "pid": rank, "tid": tid}
    yield metadata | {"name": f"{subject}_name", "args": {"name": name}}
    yield metadata | {"name": f"{subject}_sort_index", "args": {"sort_index": index}}


def clear(settings: Settings) -> None:
    """Removes the trace files of an earlier attempt of a run, which would be mistaken for new ones.

    Raises UserError where they cannot be removed.
    """
    folder = record_files.trace_folder(settings)
    if not (settings.trace or settings.timeline) or not folder.exists():
        return
    try:
        shutil.rmtree(folder)
    except OSError as problem:
        raise UserError(f"{folder}, left by an earlier attempt of this run, cannot be removed ({problem}); remove it") from None


def add_to_record(settings: Settings, record: Record) -> None:
    """Summarizes the trace files of a completed run in its record; what cannot be read, or summed up, is listed as problems."""
    folder = record_files.trace_folder(settings)
    if settings.trace:
        record.mpi_profile = _summed_up(lambda: profile.summary(folder), lambda problem: MpiProfile({}, [problem]))
    if settings.timeline:
        record.timeline = _summed_up(lambda: Timeline(MERGED, gather(folder).problems), lambda problem: Timeline(None, [problem]))


def _summed_up(sum_up: Callable[[], T], of_problem: Callable[[str], T]) -> T:
    """Returns what a function returns, or makes a value of its error: damaged trace files must not end a matrix after a good run."""
    try:
        return sum_up()
    except UserError as problem:
        return of_problem(str(problem))
    except Exception as problem:
        return of_problem(f"the trace files could not be summed up ({type(problem).__name__}: {problem})")


@dataclass(frozen=True)
class Arguments:
    """What to merge and to summarize."""

    folder: Annotated[Path, Positional]
    """Folder of a run with its spans, profiles and timeline, into which trace.json.gz is written."""


def run(arguments: Arguments) -> int:
    """Prints a summary of a folder's merged parts and returns the exit status."""
    for line in describe_folder(arguments.folder):
        print(line)
    return 0


def describe_folder(folder: Path) -> list[str]:
    """Merges a folder's parts and summarizes them in lines."""
    gathered = gather(folder)
    lines = horovod_summary.describe(gathered.horovod) if gathered.horovod else []
    for clock in gathered.clocks:
        error = "not known" if clock.error_microseconds is None else f"{clock.error_microseconds:.1f} us"
        lines.append(f"clock of {clock.source}: error {error} ({clock.note})")
    for rank, clock in gathered.ranks.items():
        error = "not known" if clock.error_microseconds is None else f"{clock.error_microseconds:.0f} us at most"
        lines.append(f"clock of rank {rank}: {clock.clock_ahead_microseconds:.0f} us ahead of rank 0's, error {error}")
    lines += [f"problem: {problem}" for problem in gathered.problems]
    return [*lines, f"{gathered.num_events} events: {folder / MERGED}"]


if __name__ == "__main__":
    command_line.main(run, Arguments, PROGRAM, "Merges what a run has left of its timeline into one trace for ui.perfetto.dev.")

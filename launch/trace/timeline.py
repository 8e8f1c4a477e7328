"""Finds the parts of a run's timeline in its trace folder, merges them into one trace, and checks and summarizes it.

python -m launch.trace.timeline FOLDER
python -m launch.trace.timeline FILE
"""

import collections
import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from common import command_line
from common.errors import UserError
from common.record.trace_parts import Clock, ClockOfRank, HorovodTimeline, ProfiledSteps, Timeline, TracedCollective
from common.tracing import chrome, horovod_summary, horovod_timeline, sources
from launch.trace import mpi_events

PROGRAM = "python -m launch.trace.timeline"
MERGED = "trace.json.gz"
# The order of a rank's tracks.
KINDS = ("data", "compute", "collectives", "MPI")
TRACKS_OF_A_KIND = 1000
# Of each rank's clock.
Offsets = Mapping[int, sources.Offset]
# The sums of collectives, by rank and name.
SumsByRank = dict[str, dict[str, TracedCollective]]


def files(folder: Path, kind: str) -> dict[int, Path]:
    """Finds the parts of a kind (spans, torch or tensorflow) in a folder, by rank."""
    matches = {path: re.fullmatch(rf"{kind}\.(\d+)\.json\.gz", path.name) for path in folder.glob("*.json.gz")}
    return dict(sorted((int(match[1]), path) for path, match in matches.items() if match))


def gather(folder: Path) -> Timeline:
    """Merges the parts in a run's folder into trace.json.gz there and checks it. Raises UserError where there is nothing to merge."""
    problems: list[str] = []
    all_sources: list[sources.Source] = []
    mpi_sources: list[sources.Source] = []
    steps: dict[int, sources.Steps] = {}
    meetings: dict[int, list[sources.Meeting]] = {}
    profiled_steps: dict[str, ProfiledSteps] = {}
    for rank, path in files(folder, "spans").items():
        with _listed(problems):
            source, steps[rank], profiled_steps[str(rank)] = sources.spans(path, rank, problems.append)
            meetings[rank] = sources.meetings(path, problems.append)
            all_sources.append(source)
    for read in (sources.torch, sources.tensorflow):
        for rank, path in files(folder, read.__name__).items():
            with _listed(problems):
                all_sources.append(read(path, rank, steps.get(rank, sources.NO_STEPS), problems.append))
    summary, path = None, folder / horovod_timeline.FILE
    with _listed(problems):
        if path.exists() and path.stat().st_size > 0:
            summary = HorovodTimeline()
            origin = horovod_timeline.start_microseconds(horovod_timeline.events_of(path))
            end = sources.run_ends_at(origin or 0, steps.get(0, sources.NO_STEPS)) if origin else None
            tensor_events = horovod_timeline.events_of(path, problems.append, *([end] if end else []))
            items = horovod_summary.counted(horovod_timeline.read(tensor_events), summary)
            if origin and end:
                all_sources.append(sources.horovod(items, origin))
            else:
                has = "a start time that is not that of the run" if origin else "no start time"
                problems.append(f"{path} has {has}, so it is not in the merged trace")
                collections.deque(items, maxlen=0)
    for path in mpi_events.find(folder):
        with _listed(problems):
            if len((events := mpi_events.read(path)).calls):
                mpi_sources.append(mpi_events.source(events))
    for source in mpi_sources:
        if sources.run_ends_at(source.origin_nanoseconds / 1000, steps.get(source.rank, sources.NO_STEPS)):
            all_sources.append(source)
        else:
            problems.append(f"{source.name} are not at the time of the run, so they are not in the merged trace")
    if not all_sources:
        reason = f": {'; '.join(problems)}" if problems else ""
        raise UserError(f"{folder} has no timeline, no profile and no steps{reason or '; run with --timeline'}")
    of_rank_0 = meetings.get(0, [])
    offsets = {rank: sources.clock_offset(of_rank, of_rank_0) if rank else sources.Offset(0.0, 0.0) for rank, of_rank in meetings.items()}
    num_events = merge(folder / MERGED, all_sources, offsets)
    sums_by_rank: SumsByRank = {}
    problems += chrome.check(counted(chrome.events(folder / MERGED, problems.append), sums_by_rank))
    return Timeline(
        trace=MERGED,
        num_events=num_events,
        clocks=clocks_of(all_sources),
        ranks=clocks_of_ranks(offsets),
        horovod=summary,
        problems=problems,
        steps=profiled_steps,
        collectives=sums_by_rank,
    )


@contextlib.contextmanager
def _listed(problems: list[str]) -> Iterator[None]:
    """Within this context what is wrong with a file becomes a problem, so that the others are merged."""
    try:
        yield
    except UserError as problem:
        problems.append(str(problem))


def clocks_of(all_sources: Iterable[sources.Source]) -> list[Clock]:
    return [Clock(source.name, source.error_microseconds, source.note) for source in all_sources]


def clocks_of_ranks(offsets: Offsets) -> dict[str, ClockOfRank]:
    return {str(rank): ClockOfRank(offset.ahead, offset.error) for rank, offset in offsets.items()}


def merge(path: Path, all_sources: Sequence[sources.Source], offsets: Offsets) -> int:
    """Writes the merged trace, gzipped, as a stream: a process per rank, tracks ordered by kind, one clock. Returns its number of events.

    ts 0 is the start of the first source; the metadata has it as origin_nanoseconds since the epoch. Each source is corrected by the
    clock offset of its rank, which is in the metadata as well.
    """
    origin = min(_epoch(source, offsets) + int(source.starts_at * 1000) for source in all_sources)
    metadata = {
        "run": path.parent.name,
        "origin_nanoseconds": origin,
        "clocks": [asdict(clock) for clock in clocks_of(all_sources)],
        "ranks": {rank: asdict(clock) for rank, clock in clocks_of_ranks(offsets).items()},
    }
    return chrome.write(path, _merged(all_sources, origin, offsets), metadata=metadata)


def _merged(all_sources: Iterable[sources.Source], origin_nanoseconds: int, offsets: Offsets) -> Iterator[chrome.Event]:
    """Yields the events of all sources with a pid per rank and a tid per track, and the metadata events with their names."""
    tracks = {}
    for source in all_sources:
        start = (_epoch(source, offsets) - origin_nanoseconds) / 1000
        for rank, kind, track, event in source.events:
            if (tid := tracks.get((rank, kind, track))) is None:
                tid = KINDS.index(kind) * TRACKS_OF_A_KIND + sum(key[:2] == (rank, kind) for key in tracks) + 1
                if not any(key[0] == rank for key in tracks):
                    yield from _named("process", rank, 0, f"rank {rank}", rank)
                tracks[rank, kind, track] = tid
                yield from _named("thread", rank, tid, f"{kind}: {track}", tid)
            yield event | {"pid": rank, "tid": tid, "ts": round(event["ts"] + start, 3)}


def _epoch(source: sources.Source, offsets: Offsets) -> int:
    """Returns a source's ts 0 on rank 0's clock, in nanoseconds since the epoch."""
    ahead = offsets[source.rank].ahead if source.rank in offsets else 0
    return source.origin_nanoseconds - int(ahead * 1000)


def _named(subject: str, rank: int, tid: int, name: str, index: int) -> Iterator[chrome.Event]:
    metadata = {"ph": "M", "ts": 0, "pid": rank, "tid": tid}
    yield metadata | {"name": f"{subject}_name", "args": {"name": name}}
    yield metadata | {"name": f"{subject}_sort_index", "args": {"sort_index": index}}


def counted(events: Iterable[chrome.Event], sums_by_rank: SumsByRank) -> Iterator[chrome.Event]:
    """Yields the events of a merged trace as they are, and sums up the collectives among them, which have bytes, by rank and name.

    These are Gloo's and those of DDP over MPI, of the steps that the profiler kept, and on rank 0 all of Horovod's. Their sums: the number
    of collectives, seconds from begin to end, and the bytes that the rank contributed.
    """
    for event in events:
        if event["ph"] == "X" and "bytes" in event.get("args", {}):
            by_name = sums_by_rank.setdefault(str(event["pid"]), {})
            sums = by_name.setdefault(event["name"], TracedCollective())
            sums.num += 1
            sums.seconds += event["dur"] / 1e6
            sums.size_bytes += event["args"]["bytes"]
        yield event


@dataclass(frozen=True)
class Arguments:
    """What to merge or to summarize."""

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of a run with its spans, profiles and timeline, into which trace.json.gz is written; or a file of Horovod's timeline, of
    which only the summary is printed."""


def run(arguments: Arguments) -> int:
    """Prints a summary of a folder's merged parts, or of a file of Horovod's timeline, and returns the exit status."""
    for line in describe_folder(arguments.path) if arguments.path.is_dir() else describe_file(arguments.path):
        print(line)
    return 0


def describe_file(path: Path) -> list[str]:
    """Summarizes a file of Horovod's timeline in lines. Raises UserError where it is not one."""
    problems = []
    summary = horovod_summary.summarize(horovod_timeline.read(horovod_timeline.events_of(path, problems.append)))
    if not (summary.num_negotiations or summary.num_operations):
        if problems:
            raise UserError(f"{'; '.join(problems)}; what could be read has no tensors of Horovod's timeline")
        raise UserError(
            f"{path} is not a timeline of Horovod: it has no tensors; give the file of HOROVOD_TIMELINE, or the folder of a run"
        )
    return [*horovod_summary.describe(summary), *(f"problem: {problem}" for problem in problems)]


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
    for rank in sorted(gathered.collectives, key=int):
        for name, sums in gathered.collectives[rank].items():
            kib, ms = sums.size_bytes / sums.num / 1024, 1e3 * sums.seconds / sums.num
            lines.append(f"rank {rank}: {sums.num} {name} of {kib:.1f} KiB on average, each {ms:.2f} ms")
    lines += [f"problem: {problem}" for problem in gathered.problems]
    return [*lines, f"{gathered.num_events} events: {folder / MERGED}"]


if __name__ == "__main__":
    command_line.main(run, Arguments, PROGRAM, "Merges what a run has left of its timeline into one trace for ui.perfetto.dev.")

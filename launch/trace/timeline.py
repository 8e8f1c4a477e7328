"""The parts of a run's timeline in its trace folder: found, merged into one trace, checked and summed up.

python -m launch.trace.timeline FOLDER
python -m launch.trace.timeline FILE
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

from common import command_line
from common.errors import UserError
from common.tracing import chrome, clocks, horovod_timeline, sources
from launch.trace import merge

PROGRAM = "python -m launch.trace.timeline"
MERGED = "trace.json.gz"


def files(folder):
    """{kind: {rank: path}} of the parts in a folder; kinds are spans, torch and tensorflow."""
    paths_by_kind = {"spans": {}, "torch": {}, "tensorflow": {}}
    for path in sorted(Path(folder).glob("*.json.gz")):
        if match := re.fullmatch(r"(spans|torch|tensorflow)\.(\d+)\.json\.gz", path.name):
            paths_by_kind[match[1]][int(match[2])] = path
    return {kind: dict(sorted(path_by_rank.items())) for kind, path_by_rank in paths_by_kind.items()}


def gather(folder, mpi_sources=()):
    """Merges the parts in a run's folder into trace.json.gz there and checks it.

    `mpi_sources` are more merge.Sources, such as sources.mpi(…). Returns what belongs into the record: `trace`, `num_events`,
    `clocks`, `ranks`, `horovod` (a horovod_timeline.Summary, or None), `problems` in words, `steps` by rank: the
    seconds of each step and of the wait for its data, and `collectives` by rank: see `counted`.
    Raises UserError where there is nothing to merge.
    """
    folder = Path(folder)
    parts, problems = files(folder), []
    steps, meetings, step_seconds = {}, {}, {}
    all_sources = list(mpi_sources)
    for rank, path in parts["spans"].items():
        steps[rank], step_seconds[rank] = _steps(path, problems.append)
        meetings[rank] = chrome.value(path, "metadata.meetings", [])
        all_sources.append(sources.spans(path, rank))
    for rank, path in parts["torch"].items():
        all_sources.append(sources.torch(path, rank, steps.get(rank), problems.append))
    for rank, path in parts["tensorflow"].items():
        all_sources.append(sources.tensorflow(path, rank, steps.get(rank), problems.append))
    timeline, sums = folder / horovod_timeline.FILE, horovod_timeline.Sums()
    has_timeline = timeline.exists() and timeline.stat().st_size > 0
    if has_timeline and (source := sources.horovod(timeline, problems.append, sums.add)):
        all_sources.append(source)
    elif has_timeline:
        problems.append(f"{timeline} has no start time, so it is not in the merged trace")
        for event in horovod_timeline.read(chrome.events(timeline, problems.append)):
            sums.add(event)
    if not all_sources:
        raise UserError(f"{folder} has no timeline, no profile and no steps; run with --timeline")
    of_rank_0 = meetings.get(0, [])
    offsets = {rank: clocks.offset(rank_meetings, of_rank_0) if rank else clocks.SAME for rank, rank_meetings in meetings.items()}
    metadata = merge.write(folder / MERGED, all_sources, offsets, {"run": folder.name})
    collectives = {}
    checked = chrome.check(counted(chrome.events(folder / MERGED, problems.append), collectives))
    problems += checked.problems
    return {
        "trace": MERGED, "num_events": metadata["num_events"], "clocks": metadata["clocks"], "ranks": metadata["ranks"],
        "horovod": sums.summary() if has_timeline else None, "problems": problems, "steps": step_seconds,
        "collectives": collectives,
    }  # fmt: skip


def as_json(value):
    """What `gather` returns, as a record has it: NamedTuples as dicts, and keys as text, all the way down."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    return {str(key): as_json(item) for key, item in value.items()} if isinstance(value, dict) else value


def nothing(problem):
    """What a record has where there was nothing to merge."""
    return {
        "trace": None, "num_events": 0, "clocks": [], "ranks": {}, "horovod": None, "problems": [str(problem)], "steps": {},
        "collectives": {},
    }  # fmt: skip


class Collectives(NamedTuple):
    """Collectives of one name on one rank: their number, seconds from begin to end, and the bytes that the rank gave into them."""

    num: int
    seconds: float
    size_bytes: int


def counted(events, collectives):
    """Yields the events of a merged trace as they are, and counts into `collectives`, {rank: {name: Collectives}}, those with bytes.

    These are Gloo's and those of DDP over MPI, of the steps that the profiler kept, and on rank 0 all of Horovod's.
    """
    for event in events:
        if event["ph"] == "X" and "bytes" in event.get("args", {}):
            by_name = collectives.setdefault(event["pid"], {})
            sums = by_name.get(event["name"], Collectives(0, 0.0, 0))
            by_name[event["name"]] = Collectives(sums.num + 1, sums.seconds + event["dur"] / 1e6, sums.size_bytes + event["args"]["bytes"])
        yield event


def _steps(path, on_cut):
    """(sources.Steps, the seconds of `_seconds`) of a rank's spans. Raises UserError where they are damaged."""
    origin = chrome.value(path, "metadata.origin_nanoseconds", 0)
    events = list(chrome.events(path, on_cut))
    try:
        return sources.steps_in(events, origin), _seconds(events)
    except (KeyError, TypeError) as problem:
        raise UserError(f"{path} is changed: a step in it has a wrong or missing entry ({problem}); copy it again, or remove it") from None


def _seconds(span_events):
    """The seconds of each step and of each wait for data in the events of a rank's spans."""
    seconds = {"step": [], "data": []}
    for event in span_events:
        seconds[event["name"]].append(event["dur"] / 1e6)
    return {"step_seconds": seconds["step"], "data_seconds": seconds["data"]}


@dataclass(frozen=True)
class Arguments:
    """What to merge or to sum up."""

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of a run with its spans, profiles and timeline, into which trace.json.gz is written; or a file of Horovod's timeline, of
    which only the summary is printed."""


def run(arguments):
    """Prints what a folder's merged parts, or a file of Horovod's timeline, come to, and returns the exit status."""
    for line in describe_folder(arguments.path) if arguments.path.is_dir() else describe_file(arguments.path):
        print(line)
    return 0


def describe_file(path):
    """The summary of a file of Horovod's timeline, in lines. Raises UserError where it is none."""
    problems = []
    try:
        summary = horovod_timeline.summarize(horovod_timeline.read(chrome.events(path, problems.append)))
    except (KeyError, TypeError) as problem:
        raise UserError(f"{path} is not a timeline of Horovod: an event has a wrong or missing entry ({problem})") from None
    if not (summary.num_negotiations or summary.num_operations):
        raise UserError(
            f"{path} is not a timeline of Horovod: it has no tensors; give the file of HOROVOD_TIMELINE, or the folder of a run"
        )
    return [*horovod_timeline.describe(summary), *(f"problem: {problem}" for problem in problems)]


def describe_folder(folder):
    """What a folder's parts come to, in lines; merges them."""
    gathered = gather(folder)
    lines = horovod_timeline.describe(gathered["horovod"]) if gathered["horovod"] else []
    for clock in gathered["clocks"]:
        error = "not known" if clock["error_microseconds"] is None else f"{clock['error_microseconds']:.1f} us"
        lines.append(f"clock of {clock['source']}: error {error} ({clock['note']})")
    for rank, clock in gathered["ranks"].items():
        error = "not known" if clock["error_microseconds"] is None else f"{clock['error_microseconds']:.0f} us at most"
        lines.append(f"clock of rank {rank}: {clock['clock_ahead_microseconds']:.0f} us ahead of rank 0's, error {error}")
    for rank, by_name in sorted(gathered["collectives"].items()):
        for name, collective in by_name.items():
            kib, ms = collective.size_bytes / collective.num / 1024, 1e3 * collective.seconds / collective.num
            lines.append(f"rank {rank}: {collective.num} {name} of {kib:.1f} KiB on average, each {ms:.2f} ms")
    lines += [f"problem: {problem}" for problem in gathered["problems"]]
    return [*lines, f"{gathered['num_events']} events: {folder / MERGED}"]


if __name__ == "__main__":
    command_line.main(run, Arguments, PROGRAM, "Merges what a run has left of its timeline into one trace for ui.perfetto.dev.")

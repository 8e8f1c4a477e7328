"""Sources of a merged trace: steps, PyTorch's profile, Horovod's timeline; how their clocks differ."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from common import chrome_trace
from common.chrome_trace import Event, Report
from common.errors import UserError
from frameworks.shared.horovod import horovod_timeline
from frameworks.shared.horovod.horovod_timeline import Activity, Item, Negotiation, Operation
from frameworks.shared.pytorch.collective_names import NCCL_KERNEL, library_of
from launch.trace import horovod_summary

ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
# The categories of PyTorch's spans in the merged trace.
CATEGORIES = ("cpu_op", "user_annotation", *ON_GPU)
ELEMENT_BYTES = {"float": 4, "double": 8, "c10::Half": 2, "c10::BFloat16": 2, "int": 4, "long int": 8, "unsigned char": 1, "signed char": 1}
STEP_NUMBER = re.compile("ProfilerStep#([0-9]+)")
# A profile begins and ends with the steps of its epoch; what is further from them has a wrong time.
MARGIN_MICROSECONDS = 600e6
# Rounding of both of Horovod's clocks to microseconds. A thread that is descheduled between the two readings adds to it.
HOROVOD_ERROR_MICROSECONDS = 2.0
HOROVOD_NOTE = "Horovod's steady clock, paired with the host's at its start; resolution 1 us"
# When a rank entered and left a collective, on its own clock, in nanoseconds since the epoch.
Meeting = Sequence[int]


@dataclass
class Clock:
    """The clock of a source, the most by which its times are wrong, and how that is known. The error is None where it is not known."""

    source: str
    error_microseconds: float | None
    note: str


class ClockOfRank(NamedTuple):
    """How far the clock of a rank's node is ahead of that of rank 0, and the most by which this is wrong; None where clocks contradict."""

    clock_ahead_microseconds: float
    error_microseconds: float | None


class Placed(NamedTuple):
    """An event with its rank, kind of track and name of the track. The event needs no pid and no tid."""

    rank: int
    kind: str
    track: str
    event: Event


class Source(NamedTuple):
    """The events of one file, spans as X, and its clock, that of the node of `rank`: `ts` 0 is at origin_nanoseconds since the epoch.

    The error of the clock may be known only after the last event. `starts_at` is the smallest ts; None where it is within the run's steps.
    """

    clock: Clock
    rank: int
    origin_nanoseconds: int
    events: Iterable[Placed]
    starts_at: float | None = None


@dataclass(frozen=True)
class Steps:
    """A rank's steps: their spans, when each began by the host's clock, and the collectives from which the offset of the clock follows.

    A step began between the end of the previous one (`before`) and its own first span (`after`), in microseconds since the epoch, by the
    number of the step.
    """

    source: Source
    meetings: list[Meeting]
    before: dict[int, float] = field(default_factory=dict)
    after: dict[int, float] = field(default_factory=dict)


def steps_of(path: Path, rank: int) -> Steps:
    """Reads a rank's steps and waits for data from the file of a profiled epoch. Raises UserError where they are not there or damaged."""
    metadata, events = chrome_trace.value(path, "metadata", {}), list(chrome_trace.events(path))
    try:
        origin = metadata["origin_nanoseconds"]
        placed = [Placed(rank, "data", "steps", event) for event in events]
        starts_at = min(event["ts"] for event in events)
        source = Source(Clock(f"steps of rank {rank}", 1.0, "the host's clock itself"), rank, origin, placed, starts_at)
        steps = Steps(source, metadata["meetings"])
        for event in events:
            if event["name"] == "step":
                number, start = event["args"]["step"], origin / 1000 + event["ts"]
                steps.after[number], steps.before[number + 1] = start, start + event["dur"]
    except (LookupError, TypeError, ValueError) as problem:
        raise UserError(f"{path} has no steps, or damaged ones ({problem!r})") from None
    return steps


def clock_of_rank(meetings: Sequence[Meeting], meetings_of_rank_0: Sequence[Meeting]) -> ClockOfRank:
    """Computes the offset of a rank's clock from the same collectives on its clock and on rank 0's.

    No rank leaves a collective before every rank has entered it. Each collective therefore bounds the difference of two clocks
    from both sides, as messages do in Cristian's algorithm (Distributed Computing 3, 1989). The offset is 0 where the bounds allow
    it, as on one node. Where the bounds contradict each other, since a clock jumped, the error is None.
    """
    if not meetings or len(meetings) != len(meetings_of_rank_0):
        return ClockOfRank(0.0, None)
    pairs = list(zip(meetings, meetings_of_rank_0, strict=True))
    highest = min(on_rank[1] - on_rank_0[0] for on_rank, on_rank_0 in pairs) / 1000
    lowest = max(on_rank[0] - on_rank_0[1] for on_rank, on_rank_0 in pairs) / 1000
    if lowest > highest:
        return ClockOfRank(0.0, None)
    ahead = 0.0 if lowest <= 0 <= highest else (lowest + highest) / 2
    return ClockOfRank(ahead, max(ahead - lowest, highest - ahead))


def torch(path: Path, rank: int, steps: Steps, report: Report) -> Source:
    """Makes a source of a rank's trace of PyTorch's profiler: operators, collectives of MPI, Gloo and NCCL, and memory as a counter.

    Raises UserError for a file that is not a trace. `report` gets a line about what is left out.
    """
    origin_nanoseconds = chrome_trace.value(path, "baseTimeNanoseconds", 0)
    clock = Clock(f"PyTorch's profiler of rank {rank}", None, "upper bound from the host's clock at each step")
    events = filter(_is_used, chrome_trace.events(path, report))
    of_run = _of_the_run(events, origin_nanoseconds / 1000, steps, clock, lambda text: report(f"{path}: {text}"))
    return Source(clock, rank, origin_nanoseconds, _place_torch(of_run, rank))


def _is_used(event: Event) -> bool:
    """Returns whether an event is a span of the merged trace, or a count of memory."""
    return event.get("cat") in CATEGORIES if event["ph"] == "X" else event.get("name") == "[memory]"


def _of_the_run(events: Iterable[Event], origin_microseconds: float, steps: Steps, clock: Clock, report: Report) -> Iterator[Event]:
    """Yields the events at the time of the run; sets the error of the clock by the steps among them."""
    earliest = min(steps.after.values()) - MARGIN_MICROSECONDS - origin_microseconds
    latest = max(steps.before.values()) + MARGIN_MICROSECONDS - origin_microseconds
    num_outside = 0
    for event in events:
        start = event.get("ts", earliest)
        if not earliest <= start <= start + event.get("dur", 0.0) <= latest:
            num_outside += 1
            continue
        if number := STEP_NUMBER.fullmatch(event["name"]):
            errors = clock.error_microseconds, step_error(int(number[1]), origin_microseconds + start, steps)
            clock.error_microseconds = min((error for error in errors if error is not None), default=None)
        yield event
    if num_outside:
        report(f"{num_outside} event{' is' if num_outside == 1 else 's are'} left out, outside the time of the run")


def step_error(number: int, start: float, steps: Steps) -> float | None:
    """Bounds the error of a profiler's clock by the start of a step, which lies between two times on the host's; None without those."""
    if number not in steps.before or number not in steps.after:
        return None
    return max(abs(start - steps.before[number]), abs(start - steps.after[number]))


def _place_torch(events: Iterable[Event], rank: int) -> Iterator[Placed]:
    for event in events:
        name, ts = event["name"], event["ts"]
        if event["ph"] != "X":
            args = {"bytes": event["args"].get("Total Allocated", 0)}
            yield Placed(rank, "compute", "memory", {"ph": "C", "name": "allocated bytes", "ts": ts, "args": args})
            continue
        span = {"ph": "X", "name": name, "ts": ts, "dur": event["dur"]}
        if event.get("cat") in ON_GPU:
            track = ("collectives", "NCCL, stream") if NCCL_KERNEL.search(name) else ("compute", "GPU stream")
        elif library := library_of(name):
            track = "collectives", f"{library}, thread"
            if size := size_bytes(event.get("args", {})):
                span["args"] = {"bytes": size}
        else:
            track = "compute", "PyTorch, thread"
        yield Placed(rank, track[0], f"{track[1]} {event['tid']}", span)


def size_bytes(args: dict[str, Any]) -> int:
    """Computes the bytes of a rank's input to a collective, from the shapes and types of the inputs; 0 where unknown."""
    inputs = zip(args.get("Input type", ()), args.get("Input Dims", ()), strict=False)
    return sum(ELEMENT_BYTES.get(kind, 0) * math.prod(dims) for kind, dims in inputs if kind in ELEMENT_BYTES)


def horovod(path: Path, summary: horovod_summary.Summary, report: Report) -> Source:
    """Makes a source of a run's timeline, whose items are added to the summary as they are read.

    Raises UserError for a file of an old version of Horovod, which does not say when it starts.
    """
    start = horovod_timeline.start_microseconds(chrome_trace.events(path))
    if start is None:
        raise UserError(f"{path} has no start time, so it is not in the merged trace")
    items = horovod_summary.counted(horovod_timeline.read(chrome_trace.events(path, report)), summary)
    return Source(Clock("Horovod's timeline", HOROVOD_ERROR_MICROSECONDS, HOROVOD_NOTE), 0, start * 1000, _place_horovod(items), 0.0)


def _place_horovod(items: Iterable[Item]) -> Iterator[Placed]:
    """Places collectives and negotiations on rank 0, and a rank's readiness, as seen on rank 0, on that rank."""
    operations, negotiations = [], []
    for item in items:
        unfinished = {} if item.finished else {"unfinished": True}
        if isinstance(item, Negotiation):
            track = "Horovod negotiation" + _nth(lane_for(negotiations, item.start, item.end))
            yield Placed(0, "collectives", track, _span(item, {"tensor": item.tensor} | unfinished))
            for rank, ts in item.ready.items():
                ready = {"ph": "i", "s": "t", "name": f"ready: {item.tensor}", "ts": ts}
                yield Placed(rank, "collectives", "Horovod: ready on rank 0", ready)
            continue
        track = "Horovod" + _nth(lane_for(operations, item.start, item.end))
        args = {"tensors": len(item.tensors), "first": item.tensors[0]} | ({"bytes": item.size_bytes} if item.size_bytes else {})
        yield Placed(0, "collectives", track, _span(item, args | unfinished))
        for activity in item.activities:
            yield Placed(0, "collectives", track, _span(activity, {}))


def lane_for(ends: list[float], start: float, end: float) -> int:
    """Returns the number, from 0, of a lane that is free at a span's start, so that spans in one lane do not overlap.

    `ends` has the end of the last span in each lane, and is updated. Spans come in the order of their ends.
    """
    lane = next((lane for lane, busy_until in enumerate(ends) if busy_until <= start), len(ends))
    ends[lane : lane + 1] = [end]
    return lane


def _nth(lane: int) -> str:
    return f" {lane + 1}" if lane else ""


def _span(item: Negotiation | Operation | Activity, args: dict[str, Any]) -> Event:
    return {"ph": "X", "name": item.name, "ts": item.start, "dur": item.end - item.start} | ({"args": args} if args else {})

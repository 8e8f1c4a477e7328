"""Sources of a merged trace: step spans, PyTorch's and TensorFlow's profiles, Horovod's timeline, MPI events; and their clocks."""

import itertools
import math
import re
import reprlib
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common.errors import UserError
from common.record.trace_parts import ProfiledSteps
from common.tracing import chrome
from common.tracing.chrome import Event, Report
from common.tracing.horovod_timeline import (
    LATEST_MICROSECONDS,
    LONGEST_RUN_MICROSECONDS,
    MAX_BYTES,
    Activity,
    Cycle,
    Item,
    Negotiation,
    Operation,
)
from common.tracing.profiling import STEP

# Names of collectives in PyTorch's profiler: in Gloo's threads, in the communication hooks over MPI and of PowerSGD, and on the GPU.
GLOO, MPI = "gloo:", "mpi:"
LIBRARIES = {GLOO: "Gloo", MPI: "MPI", "powersgd:": "PowerSGD"}
NCCL_KERNEL = re.compile(r"nccl(Dev)?Kernel", re.IGNORECASE)
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
ELEMENT_BYTES = {"float": 4, "double": 8, "c10::Half": 2, "c10::BFloat16": 2, "int": 4, "long int": 8, "unsigned char": 1, "signed char": 1}
# Rounding of both clocks to microseconds. A thread that is descheduled between the two readings adds to it.
HOROVOD_ERROR_MICROSECONDS = 2.0
STEP_NUMBER = re.compile(rf"{STEP}([0-9]{{1,9}})")
# A profile begins and ends with the steps of its epoch; what is further from them has a wrong time.
MARGIN_MICROSECONDS = 600e6
LONGEST_EPOCH_MICROSECONDS = 24 * 3600 * 1e6
NUM_FOR_MEDIAN = 10_000
# When a rank entered and left a collective, on its own clock, in nanoseconds since the epoch.
Meeting = Sequence[int]


class Placed(NamedTuple):
    """An event with its rank, kind of track and name of the track. The event needs no pid and no tid."""

    rank: int
    kind: str
    track: str
    event: Event


class Source(NamedTuple):
    """The events of one file, spans as X, and its clock: `ts` 0 is at origin_nanoseconds since the epoch.

    The clock is that of the node of `rank`. `starts_at` is the smallest ts. `error_microseconds` is the error bound against that
    clock, None where unknown; `note` explains it.
    """

    name: str
    rank: int
    origin_nanoseconds: int
    starts_at: float
    error_microseconds: float | None
    note: str
    events: Iterable[Placed]


class Steps(NamedTuple):
    """When a rank's steps began by the host's clock: each between the end of the previous step and its own first span.

    Microseconds since the epoch, by the number of the step.
    """

    before: dict[int, float]
    after: dict[int, float]


class _Survey(NamedTuple):
    """What a first pass over a profile shows: the threads of Gloo alone, the first time, and the clock's error with its note."""

    gloo_threads: set[int]
    starts_at: float
    error_microseconds: float | None
    note: str


NO_STEPS = Steps({}, {})


class Offset(NamedTuple):
    """How far a clock is ahead of rank 0's, and the error bound; microseconds, None where unknown."""

    ahead: float
    error: float | None


def clock_offset(collectives: Sequence[Meeting], collectives_of_rank_0: Sequence[Meeting]) -> Offset:
    """Computes the offset of a rank's clock from the same collectives on its clock and on rank 0's.

    No rank leaves a collective before every rank has entered it. Each collective therefore bounds the difference of two clocks
    from both sides, as messages do in Cristian's algorithm (Distributed Computing 3, 1989). The offset is 0 where the bounds allow
    it, as on one node. Where the bounds contradict each other, since a clock jumped, the error is None.
    """
    if not collectives or len(collectives) != len(collectives_of_rank_0):
        return Offset(0.0, None)
    pairs = list(zip(collectives, collectives_of_rank_0, strict=True))
    highest = min(on_rank[1] - on_rank_0[0] for on_rank, on_rank_0 in pairs) / 1000
    lowest = max(on_rank[0] - on_rank_0[1] for on_rank, on_rank_0 in pairs) / 1000
    if lowest > highest:
        return Offset(0.0, None)
    ahead = 0.0 if lowest <= 0 <= highest else (lowest + highest) / 2
    return Offset(ahead, max(ahead - lowest, highest - ahead))


def is_collective(name: str) -> bool:
    """Returns whether an event name of PyTorch's profiler is that of a collective itself, not of a call that starts one."""
    return name.startswith(tuple(LIBRARIES)) or NCCL_KERNEL.search(name) is not None


def spans(path: Path, rank: int, report: Report | None = None) -> tuple[Source, Steps, ProfiledSteps]:
    """Reads a rank's steps and waits for data from the file that profiling.py has written.

    `report` gets a line about what is left out. Raises UserError where nothing is left.
    """
    origin = _origin(path, "metadata.origin_nanoseconds")
    window = _around(chrome.events(path), _problem_of_span)
    events = list(chrome.valid(chrome.events(path, report), _problem_of_span, window, chrome.naming(path, report)))
    if not events:
        raise UserError(f"{path} has no steps")
    before, after, seconds = {}, {}, {"step": [], "data": []}
    for event in events:
        seconds[event["name"]].append(event["dur"] / 1e6)
        if event["name"] == "step":
            number, start = event["args"]["step"], origin / 1000 + event["ts"]
            after[number], before[number + 1] = start, start + event["dur"]
    placed = [Placed(rank, "data", "steps", event) for event in events]
    starts_at = min(event["ts"] for event in events)
    source = Source(f"steps of rank {rank}", rank, origin, starts_at, 1.0, "the host's clock itself", placed)
    return source, Steps(before, after), ProfiledSteps(seconds["step"], seconds["data"])


def _problem_of_span(event: Event) -> str | None:
    """Describes what is wrong with an event of profiling.py; None where nothing is."""
    if problem := chrome.problem_of(event, ("name", "ts", "dur", "args")):
        return problem
    is_step = event["name"] in ("step", "data") and isinstance(event["args"].get("step"), int)
    return None if is_step else "is neither a step nor a wait for data"


def meetings(path: Path, report: Report) -> list[Meeting]:
    """Reads the collectives from which the offset of a rank's clock follows; none where they are damaged."""
    pairs = chrome.value(path, "metadata.meetings", [])
    if isinstance(pairs, list) and all(isinstance(pair, list) and [*map(type, pair)] == [int, int] for pair in pairs):
        return pairs
    report(f"{path}: its meetings are not pairs of times, so its clock is not compared with rank 0's")
    return []


def _origin(path: Path, name: str) -> int:
    """Reads the time of a file's ts 0 in nanoseconds since the epoch; 0 where it has none. Raises UserError where that is no time."""
    origin = chrome.value(path, name, 0)
    if isinstance(origin, bool) or not isinstance(origin, int) or not 0 <= origin < LATEST_MICROSECONDS * 1000:
        raise UserError(f"{path} is left out: its {name} is {reprlib.repr(origin)}, which is not a time in nanoseconds")
    return origin


def _around(trace_events: Iterable[Event], problem_of_event: Callable[[Event], str | None]) -> tuple[float, float]:
    """Returns the window of time around the median of the first events, for a file whose steps have no time by the host's clock."""
    usable = (event["ts"] for event in trace_events if problem_of_event(event) is None)
    times = list(itertools.islice(usable, NUM_FOR_MEDIAN))
    median = statistics.median(times) if times else 0.0
    return median - LONGEST_EPOCH_MICROSECONDS, median + LONGEST_EPOCH_MICROSECONDS


def torch(path: Path, rank: int, steps: Steps = NO_STEPS, report: Callable[[str], None] | None = None) -> Source:
    """Reads a rank's trace of PyTorch's profiler: operators as compute, the work of MPI, Gloo and NCCL as collectives, memory as a counter.

    The profiler's clock is compared with the host's by `steps`. `report` gets a line about what is left out.
    """
    base = _origin(path, "baseTimeNanoseconds")
    read = _reader(path, base, steps, lambda event: _is_kept(event) or _is_memory(event), _problem_of_torch)
    survey = _survey(path, read(report), base, steps)
    events = _torch_events(read(None), rank, survey.gloo_threads)
    return Source(f"PyTorch's profiler of rank {rank}", rank, base, survey.starts_at, survey.error_microseconds, survey.note, events)


def tensorflow(path: Path, rank: int, steps: Steps = NO_STEPS, report: Callable[[str], None] | None = None) -> Source:
    """Reads a rank's trace of TensorFlow's profiler, converted by profiling.py; `steps` and `report` as for torch."""
    base = _origin(path, "metadata.origin_nanoseconds")
    read = _reader(path, base, steps, lambda event: _is_kept(event) or _is_thread(event), _problem_of_tensorflow)
    survey = _survey(path, read(report), base, steps)
    events = map(_with_own_track_for_steps, by_thread(read(None), rank, "compute"))
    return Source(f"TensorFlow's profiler of rank {rank}", rank, base, survey.starts_at, survey.error_microseconds, survey.note, events)


def _reader(
    path: Path, base_nanoseconds: int, steps: Steps, is_used: Callable[[Event], bool], problem_of_event: Callable[[Event], str | None]
) -> Callable[[Report | None], Iterator[Event]]:
    """Returns a function that reads the valid events of a profile, in each call anew, and reports what it leaves out."""
    if steps.after:
        begin, end = min(steps.after.values()), max(steps.before.values())
        window = begin - MARGIN_MICROSECONDS - base_nanoseconds / 1000, end + MARGIN_MICROSECONDS - base_nanoseconds / 1000
    else:
        spans_only = (event for event in chrome.events(path) if is_used(event) and "ts" in event)
        window = _around(spans_only, problem_of_event)

    def read(report: Report | None) -> Iterator[Event]:
        return chrome.valid(filter(is_used, chrome.events(path, report)), problem_of_event, window, chrome.naming(path, report))

    return read


def _problem_of_torch(event: Event) -> str | None:
    """Describes what is wrong with an event of PyTorch's profiler; None where nothing is."""
    if event["ph"] == "X":
        return chrome.problem_of(event, ("name", "ts", "dur", "tid"))
    problem = chrome.problem_of(event, ("ts", "args"))
    is_number = not problem and chrome.is_number(event["args"].get("Total Allocated", 0))
    return problem if problem or is_number else "has no number of allocated bytes"


def _problem_of_tensorflow(event: Event) -> str | None:
    """Describes what is wrong with an event of TensorFlow's profile, as profiling.py converts it; None where nothing is."""
    return chrome.problem_of(event, ("name", "pid", "tid", *(("ts", "dur") if event["ph"] == "X" else ("args",))))


def _survey(path: Path, trace_events: Iterable[Event], base_nanoseconds: int, steps: Steps) -> _Survey:
    """Goes through a profile a first time. Raises UserError where it has no span, and so no first time."""
    starts_at, gloo_threads, main_threads, profiled = math.inf, set(), set(), {}
    for event in filter(_is_kept, trace_events):
        starts_at = min(starts_at, event["ts"])
        if event["name"].startswith(GLOO):
            gloo_threads.add(event["tid"])
        elif number := STEP_NUMBER.fullmatch(event["name"]):
            profiled[int(number[1])] = base_nanoseconds / 1000 + event["ts"]
            main_threads.add(event["tid"])
    if starts_at == math.inf:
        raise UserError(f"{path} has no spans of the run, and is not in the merged trace")
    error = clock_error(profiled, *steps)
    note = "not compared with the host's clock" if error is None else "upper bound from the host's clock at each step"
    # The main thread has a pipeline's sends and receives, from their call to the wait for them.
    return _Survey(gloo_threads - main_threads, starts_at, error, note)


def clock_error(profiled: Mapping[int, float], before: Mapping[int, float], after: Mapping[int, float]) -> float | None:
    """Bounds the error of a profiler's clock: each `profiled` start of a step lies between `before` and `after` on the host's clock.

    All are times in microseconds by the step's number; None where they have no step in common.
    """
    numbers = profiled.keys() & before.keys() & after.keys()
    if not numbers:
        return None
    highest = min(profiled[number] - before[number] for number in numbers)
    lowest = max(profiled[number] - after[number] for number in numbers)
    return max(abs(highest), abs(lowest))


def _is_kept(event: Event) -> bool:
    """Returns whether an event is a span of the merged trace. Those of TensorFlow have no category."""
    return event.get("ph") == "X" and event.get("cat", "cpu_op") in ("cpu_op", "user_annotation", *ON_GPU)


def _is_memory(event: Event) -> bool:
    return event.get("ph") == "i" and event.get("name") == "[memory]"


def _is_thread(event: Event) -> bool:
    return event.get("ph") == "M" and event.get("name") == "thread_name"


def _torch_events(trace_events: Iterable[Event], rank: int, gloo_threads: Collection[int]) -> Iterator[Placed]:
    for event in trace_events:
        if event["ph"] == "X":
            kept = {"ph": "X", "name": event["name"], "ts": event["ts"], "dur": event["dur"]}
            if event["name"].startswith((GLOO, MPI)) and (size := size_bytes(event.get("args", {}))):
                kept["args"] = {"bytes": size}
            yield Placed(rank, *_torch_track(event, gloo_threads), kept)
        else:
            args = {"bytes": event["args"].get("Total Allocated", 0)}
            yield Placed(rank, "compute", "memory", {"ph": "C", "name": "allocated bytes", "ts": event["ts"], "args": args})


def _torch_track(event: Event, gloo_threads: Collection[int]) -> tuple[str, str]:
    """Returns the kind and the name of the track for an event of PyTorch's profiler."""
    name, tid = event["name"], event["tid"]
    if event.get("cat") in ON_GPU:
        return ("collectives", f"NCCL, stream {tid}") if NCCL_KERNEL.search(name) else ("compute", f"GPU stream {tid}")
    of_thread = "Gloo" if tid in gloo_threads else None
    library = next((library for start, library in LIBRARIES.items() if name.startswith(start)), of_thread)
    return ("collectives", f"{library}, thread {tid}") if library else ("compute", f"PyTorch, thread {tid}")


def size_bytes(args: dict[str, Any]) -> int:
    """Computes the bytes of a rank's input to a collective, from the shapes and types of the inputs; 0 where unknown."""
    kinds, shapes = (value if isinstance(value := args.get(name), list) else [] for name in ("Input type", "Input Dims"))
    total = 0
    for kind, dims in zip(kinds, shapes, strict=False):
        is_known = isinstance(kind, str) and kind in ELEMENT_BYTES and isinstance(dims, list)
        if is_known and all(isinstance(length, int) and length >= 0 for length in dims):
            total += ELEMENT_BYTES[kind] * math.prod(dims)
    return total if total < MAX_BYTES else 0


def _with_own_track_for_steps(placed: Placed) -> Placed:
    """Puts steps on a track of their own: they begin and end inside different spans of Keras."""
    return placed._replace(kind="data", track="TensorFlow's steps") if placed.event["name"].startswith(STEP) else placed


def by_thread(events: Iterable[Event], rank: int, kind: str) -> Iterator[Placed]:
    """Yields spans on a track for each thread, with the thread's name, and its number where two threads have the same name."""
    names = {}
    for event in events:
        if event["ph"] == "X":
            yield Placed(rank, kind, names.get((event["pid"], event["tid"]), f"thread {event['tid']}"), event)
        elif event["name"] == "thread_name":
            name, tid = event["args"].get("name"), event["tid"]
            names[event["pid"], tid] = f"{name}, thread {tid}" if name in names.values() else name


def lane_for(ends: list[float], start: float, end: float) -> int:
    """Returns the number, from 0, of a lane that is free at a span's start, so that spans in one lane do not overlap.

    `ends` has the end of the last span in each lane, and is updated. Spans come in the order of their ends.
    """
    lane = next((lane for lane, busy_until in enumerate(ends) if busy_until <= start), len(ends))
    ends[lane : lane + 1] = [end]
    return lane


def horovod(items: Iterable[Item], origin_microseconds: int) -> Source:
    """Places the items of horovod_timeline.read: collectives and negotiations on rank 0, a rank's readiness for rank 0 on that rank.

    `origin_microseconds` is the epoch time of the timeline's ts 0.
    """
    note = "Horovod's steady clock, paired with the host's at its start; resolution 1 us"
    return Source("Horovod's timeline", 0, origin_microseconds * 1000, 0.0, HOROVOD_ERROR_MICROSECONDS, note, _horovod_events(items))


def _horovod_events(items: Iterable[Item]) -> Iterator[Placed]:
    operations, negotiations = [], []
    for item in items:
        if isinstance(item, Cycle):
            mark = {"ph": "i", "s": "t", "name": "CYCLE_START", "ts": item.start, "args": {"tensors": item.num_tensors}}
            yield Placed(0, "collectives", "Horovod cycles", mark)
            continue
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


def run_ends_at(origin_microseconds: float, steps: Steps) -> float | None:
    """Returns the latest time since an origin in a run whose last epoch has these steps; None where the origin is not within the run."""
    if not steps.after:
        return LONGEST_RUN_MICROSECONDS
    end = max(steps.before.values()) + MARGIN_MICROSECONDS - origin_microseconds
    return end if 0 <= end <= LONGEST_RUN_MICROSECONDS else None


def _nth(lane: int) -> str:
    return f" {lane + 1}" if lane else ""


def _span(item: Negotiation | Operation | Activity, args: dict[str, Any]) -> Event:
    return {"ph": "X", "name": item.name, "ts": item.start, "dur": item.end - item.start} | ({"args": args} if args else {})

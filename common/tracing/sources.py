"""Sources of a merged trace: step spans, PyTorch's and TensorFlow's profiles, Horovod's timeline, MPI events; and their clocks."""

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from common.errors import UserError
from common.tracing import chrome
from common.tracing.horovod_timeline import Cycle, Negotiation
from common.tracing.profiling import STEP

# Names of collectives in PyTorch's profiler: in Gloo's threads, in the communication hooks over MPI and of PowerSGD, and on the GPU.
GLOO, MPI = "gloo:", "mpi:"
LIBRARIES = {GLOO: "Gloo", MPI: "MPI", "powersgd:": "PowerSGD"}
NCCL_KERNEL = re.compile(r"nccl(Dev)?Kernel", re.IGNORECASE)
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
ELEMENT_BYTES = {"float": 4, "double": 8, "c10::Half": 2, "c10::BFloat16": 2, "int": 4, "long int": 8, "unsigned char": 1, "signed char": 1}
# Rounding of both clocks to microseconds. A thread that is descheduled between the two readings adds to it.
HOROVOD_ERROR_MICROSECONDS = 2.0


class Placed(NamedTuple):
    """An event with its rank, kind of track and track name. The event needs no pid and no tid."""

    rank: int
    kind: str
    track: str
    event: dict


class Source(NamedTuple):
    """The events of one file, spans as X, and its clock: `ts` 0 is at origin_nanoseconds since the epoch.

    `rank`: the rank on whose node the clock runs. `starts_at`: the smallest ts. `error_microseconds`: the error bound against that
    clock, None where unknown; `note` explains it.
    """

    name: str
    rank: int
    origin_nanoseconds: int
    starts_at: float
    error_microseconds: float | None
    note: str
    events: Iterable[Placed]


class Offset(NamedTuple):
    """How far a clock is ahead of rank 0's, and the error bound; microseconds, None where unknown."""

    ahead: float
    error: float | None


def clock_offset(collectives, collectives_of_rank_0):
    """Returns the Offset of a rank's clock, from (entered, left) of each collective on its own clock and on rank 0's, in nanoseconds.

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


def is_collective(name):
    """Tells whether an event name of PyTorch's profiler is that of a collective itself, not of a call that starts one."""
    return name.startswith(tuple(LIBRARIES)) or NCCL_KERNEL.search(name) is not None


def spans(path, rank, on_cut=None):
    """Returns (Source of a rank's steps and waits for data, its steps, seconds of each by kind), from the file written by profiling.py.

    The steps are ({step: end of the step before}, {step: its own start}), in microseconds since the epoch. Raises UserError for
    damaged ones.
    """
    origin = chrome.value(path, "metadata.origin_nanoseconds", 0)
    events, before, after, seconds = list(chrome.events(path, on_cut)), {}, {}, {"step": [], "data": []}
    try:
        for event in events:
            seconds[event["name"]].append(event["dur"] / 1e6)
            if event["name"] == "step":
                number, start = event["args"]["step"], origin / 1000 + event["ts"]
                after[number], before[number + 1] = start, start + event["dur"]
    except (KeyError, TypeError) as problem:
        raise UserError(f"{path} is changed: a step in it has a wrong or missing entry ({problem}); copy it again, or remove it") from None
    placed = [Placed(rank, "data", "steps", event) for event in events]
    source = Source(f"steps of rank {rank}", rank, origin, 0.0, 1.0, "the host's clock itself", placed)
    return source, (before, after), {"step_seconds": seconds["step"], "data_seconds": seconds["data"]}


NO_STEPS = ({}, {})


def torch(path, rank, steps=NO_STEPS, on_cut=None):
    """Reads a rank's trace of PyTorch's profiler: operators as compute, the work of MPI, Gloo and NCCL as collectives, memory as a counter.

    `steps` (see spans): for comparing the profiler's clock with the host's.
    """
    base = chrome.value(path, "baseTimeNanoseconds", 0)
    gloo_threads, *clock = _survey(path, base, steps, on_cut)
    return Source(f"PyTorch's profiler of rank {rank}", rank, base, *clock, _torch_events(path, rank, gloo_threads))


def tensorflow(path, rank, steps=NO_STEPS, on_cut=None):
    """Reads a rank's trace of TensorFlow's profiler, converted by profiling.py; `steps` as for torch."""
    base = chrome.value(path, "metadata.origin_nanoseconds", 0)
    _, *clock = _survey(path, base, steps, on_cut)
    events = map(_with_own_track_for_steps, by_thread(chrome.events(path), rank, "compute"))
    return Source(f"TensorFlow's profiler of rank {rank}", rank, base, *clock, events)


def _survey(path, base_nanoseconds, steps, on_cut):
    """Returns (Gloo's own threads, first time, clock error and its note) from a first pass over a profile."""
    starts_at, gloo_threads, main_threads, seen = math.inf, set(), set(), {}
    for event in filter(_is_kept, chrome.events(path, on_cut)):
        starts_at = min(starts_at, event["ts"])
        if event["name"].startswith(GLOO):
            gloo_threads.add(event["tid"])
        elif event["name"].startswith(STEP):
            seen[int(event["name"].removeprefix(STEP))] = base_nanoseconds / 1000 + event["ts"]
            main_threads.add(event["tid"])
    error = clock_error(seen, *steps)
    note = "not compared with the host's clock" if error is None else "upper bound from the host's clock at each step"
    # The main thread has a pipeline's sends and receives, from their call to the wait for them.
    return gloo_threads - main_threads, 0.0 if starts_at == math.inf else starts_at, error, note


def clock_error(seen, before, after):
    """Returns the error bound of a profiler's clock: its steps begin at `seen`, which is between `before` and `after` on the host's clock.

    All are dicts by the step's number, in microseconds; None where they have no step in common.
    """
    common = seen.keys() & before.keys() & after.keys()
    if not common:
        return None
    highest = min(seen[number] - before[number] for number in common)
    lowest = max(seen[number] - after[number] for number in common)
    return max(abs(highest), abs(lowest))


def _is_kept(event):
    """Tells whether an event is a span of the merged trace. Those of TensorFlow have no category."""
    return event.get("ph") == "X" and event.get("cat", "cpu_op") in ("cpu_op", "user_annotation", *ON_GPU)


def _torch_events(path, rank, gloo_threads):
    for event in chrome.events(path):
        if _is_kept(event):
            kept = {"ph": "X", "name": event["name"], "ts": event["ts"], "dur": event["dur"]}
            if event["name"].startswith((GLOO, MPI)) and (size := size_bytes(event.get("args", {}))):
                kept["args"] = {"bytes": size}
            yield Placed(rank, *_torch_track(event, gloo_threads), kept)
        elif event.get("ph") == "i" and event.get("name") == "[memory]":
            args = {"bytes": event["args"].get("Total Allocated", 0)}
            yield Placed(rank, "compute", "memory", {"ph": "C", "name": "allocated bytes", "ts": event["ts"], "args": args})


def _torch_track(event, gloo_threads):
    """Returns (kind, track) of an event of PyTorch's profiler."""
    name, tid = event["name"], event["tid"]
    if event["cat"] in ON_GPU:
        return ("collectives", f"NCCL, stream {tid}") if NCCL_KERNEL.search(name) else ("compute", f"GPU stream {tid}")
    of_thread = "Gloo" if tid in gloo_threads else None
    library = next((library for start, library in LIBRARIES.items() if name.startswith(start)), of_thread)
    return ("collectives", f"{library}, thread {tid}") if library else ("compute", f"PyTorch, thread {tid}")


def size_bytes(args):
    """Returns the bytes of a rank's input to a collective, from the shapes and types of the inputs; 0 where unknown."""
    total = 0
    for kind, dims in zip(args.get("Input type", []), args.get("Input Dims", []), strict=False):
        if kind in ELEMENT_BYTES and all(isinstance(length, int) for length in dims):
            total += ELEMENT_BYTES[kind] * math.prod(dims)
    return total


def _with_own_track_for_steps(placed):
    """Puts steps on a track of their own: they begin and end inside different spans of Keras."""
    return placed._replace(kind="data", track="TensorFlow's steps") if placed.event["name"].startswith(STEP) else placed


def by_thread(events, rank, kind):
    """Yields spans on a track for each thread, with the thread's name, and its number where two threads have the same name."""
    names = {}
    for event in events:
        if event["ph"] == "X":
            yield Placed(rank, kind, names[event["pid"], event["tid"]], event)
        elif event["name"] == "thread_name":
            name, tid = event["args"]["name"], event["tid"]
            names[event["pid"], tid] = f"{name}, thread {tid}" if name in names.values() else name


def lane_for(ends, start, end):
    """Returns the number, from 0, of a lane that is free at a span's start, so that spans in one lane do not overlap.

    `ends`: the end of the last span in each lane, which is updated. Spans come in the order of their ends.
    """
    lane = next((lane for lane, busy_until in enumerate(ends) if busy_until <= start), len(ends))
    ends[lane : lane + 1] = [end]
    return lane


def horovod(items, origin_microseconds):
    """Places the items of horovod_timeline.read: collectives and negotiations on rank 0, a rank's readiness for rank 0 on that rank.

    `origin_microseconds`: the epoch time of the timeline's ts 0.
    """
    note = "Horovod's steady clock, paired with the host's at its start; resolution 1 us"
    return Source("Horovod's timeline", 0, origin_microseconds * 1000, 0.0, HOROVOD_ERROR_MICROSECONDS, note, _horovod_events(items))


def _horovod_events(items):
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


def _nth(lane):
    return f" {lane + 1}" if lane else ""


def _span(item, args):
    return {"ph": "X", "name": item.name, "ts": item.start, "dur": item.end - item.start} | ({"args": args} if args else {})

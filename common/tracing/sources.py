"""Sources of a merged trace: step spans, PyTorch's and TensorFlow's profiles, Horovod's timeline, MPI events."""

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from common.tracing import chrome, clocks
from common.tracing.horovod_timeline import Cycle, Negotiation
from common.tracing.xplane import STEP

# Names of collectives in PyTorch's profiler: in Gloo's threads, in the communication hooks over MPI and of PowerSGD, and on the GPU.
GLOO, MPI, POWER_SGD = "gloo:", "mpi:", "powersgd:"
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


def is_collective(name):
    """Tells whether an event name of PyTorch's profiler is that of a collective itself, not of a call that starts one."""
    return name.startswith((GLOO, MPI, POWER_SGD)) or NCCL_KERNEL.search(name) is not None


def spans(path, rank):
    """Returns the steps of a rank and its waits for data, from the file written by profiling.py."""
    origin = chrome.value(path, "metadata.origin_nanoseconds", 0)
    placed = (Placed(rank, "data", "steps", event) for event in chrome.events(path))
    return Source(f"steps of rank {rank}", rank, origin, 0.0, 1.0, "the host's clock itself", placed)


class Steps(NamedTuple):
    """The end of the step before and the own start of each training step, by its number; microseconds since the epoch."""

    before: dict[int, float]
    after: dict[int, float]


NO_STEPS = Steps({}, {})


def steps_in(span_events, origin_nanoseconds):
    """Returns the Steps in the events of the file written by profiling.py."""
    before, after = {}, {}
    for event in span_events:
        if event["name"] == "step":
            number, start = event["args"]["step"], origin_nanoseconds / 1000 + event["ts"]
            after[number], before[number + 1] = start, start + event["dur"]
    return Steps(before, after)


class _Survey(NamedTuple):
    """The result of a first pass over a profile: its first time, Gloo's own threads, and the starts of steps."""

    starts_at: float
    gloo_threads: set
    steps: dict[int, float]


def _survey(path, on_cut):
    starts_at, gloo_threads, main_threads, steps = math.inf, set(), set(), {}
    for event in filter(_is_kept, chrome.events(path, on_cut)):
        starts_at = min(starts_at, event["ts"])
        if event["name"].startswith(GLOO):
            gloo_threads.add(event["tid"])
        elif event["name"].startswith(STEP):
            steps[int(event["name"].removeprefix(STEP))] = event["ts"]
            main_threads.add(event["tid"])
    # The main thread has a pipeline's sends and receives, from their call to the wait for them.
    return _Survey(0.0 if starts_at == math.inf else starts_at, gloo_threads - main_threads, steps)


def _is_kept(event):
    """Tells whether an event is a span of the merged trace. Those of TensorFlow have no category."""
    return event.get("ph") == "X" and event.get("cat", "cpu_op") in ("cpu_op", "user_annotation", *ON_GPU)


def _clock_error(survey, base_nanoseconds, steps):
    """Returns (error in microseconds, note) of a profiler's clock against the host's, from the starts of steps on both.

    The profiler's step begins between the end of the previous training step and the start of its own.
    """
    seen = {number: base_nanoseconds / 1000 + ts for number, ts in survey.steps.items()}
    error = clocks.error_microseconds(seen, *steps)
    return error, "not compared with the host's clock" if error is None else "upper bound from the host's clock at each step"


def torch(path, rank, steps=NO_STEPS, on_cut=None):
    """Reads a rank's trace of PyTorch's profiler: operators as compute, the work of MPI, Gloo and NCCL as collectives, memory as a counter.

    `steps` (Steps): for comparing the profiler's clock with the host's.
    """
    base = chrome.value(path, "baseTimeNanoseconds", 0)
    survey = _survey(path, on_cut)
    events = _torch_events(path, rank, survey.gloo_threads)
    return Source(f"PyTorch's profiler of rank {rank}", rank, base, survey.starts_at, *_clock_error(survey, base, steps), events)


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
    if event["cat"] in ON_GPU:
        collective = NCCL_KERNEL.search(event["name"])
        return ("collectives", f"NCCL, stream {event['tid']}") if collective else ("compute", f"GPU stream {event['tid']}")
    if event["name"].startswith(MPI):
        return "collectives", f"MPI, thread {event['tid']}"
    if event["name"].startswith(POWER_SGD):
        return "collectives", f"PowerSGD, thread {event['tid']}"
    if event["tid"] in gloo_threads or event["name"].startswith(GLOO):
        return "collectives", f"Gloo, thread {event['tid']}"
    return "compute", f"PyTorch, thread {event['tid']}"


def size_bytes(args):
    """Returns the bytes of a rank's input to a collective, from the shapes and types of the inputs; 0 where unknown."""
    total = 0
    for kind, dims in zip(args.get("Input type", []), args.get("Input Dims", []), strict=False):
        if kind in ELEMENT_BYTES and all(isinstance(length, int) for length in dims):
            total += ELEMENT_BYTES[kind] * math.prod(dims)
    return total


def tensorflow(path, rank, steps=NO_STEPS, on_cut=None):
    """Reads a rank's trace of TensorFlow's profiler, converted by xplane.py. `steps`: for comparing its clock with the host's."""
    base = chrome.value(path, "metadata.origin_nanoseconds", 0)
    survey = _survey(path, on_cut)
    events = map(_with_own_track_for_steps, by_thread(chrome.events(path), rank, "compute"))
    return Source(f"TensorFlow's profiler of rank {rank}", rank, base, survey.starts_at, *_clock_error(survey, base, steps), events)


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


class Lanes:
    """Assigns overlapping spans to as few tracks as needed. Spans arrive in the order of their ends."""

    def __init__(self):
        self.ends = []

    def lane_for(self, start, end):
        """Returns the number, from 0, of a lane that is free at this span's start."""
        for number, busy_until in enumerate(self.ends):
            if busy_until <= start:
                self.ends[number] = end
                return number
        self.ends.append(end)
        return len(self.ends) - 1


def horovod(items, origin_microseconds):
    """Places the items of horovod_timeline.read: collectives and negotiations on rank 0, a rank's readiness for rank 0 on that rank.

    `origin_microseconds`: the epoch time of the timeline's ts 0.
    """
    note = "Horovod's steady clock, paired with the host's at its start; resolution 1 us"
    return Source("Horovod's timeline", 0, origin_microseconds * 1000, 0.0, HOROVOD_ERROR_MICROSECONDS, note, _horovod_events(items))


def _horovod_events(items):
    operations, negotiations = Lanes(), Lanes()
    for item in items:
        if isinstance(item, Cycle):
            mark = {"ph": "i", "s": "t", "name": "CYCLE_START", "ts": item.start, "args": {"tensors": item.num_tensors}}
            yield Placed(0, "collectives", "Horovod cycles", mark)
            continue
        unfinished = {} if item.finished else {"unfinished": True}
        if isinstance(item, Negotiation):
            track = "Horovod negotiation" + _nth(negotiations.lane_for(item.start, item.end))
            yield Placed(0, "collectives", track, _span(item, {"tensor": item.tensor} | unfinished))
            for rank, ts in item.ready.items():
                ready = {"ph": "i", "s": "t", "name": f"ready: {item.tensor}", "ts": ts}
                yield Placed(rank, "collectives", "Horovod: ready on rank 0", ready)
            continue
        track = "Horovod" + _nth(operations.lane_for(item.start, item.end))
        args = {"tensors": len(item.tensors), "first": item.tensors[0]} | ({"bytes": item.size_bytes} if item.size_bytes else {})
        yield Placed(0, "collectives", track, _span(item, args | unfinished))
        for activity in item.activities:
            yield Placed(0, "collectives", track, _span(activity, {}))


def _nth(lane):
    return f" {lane + 1}" if lane else ""


def _span(item, args):
    return {"ph": "X", "name": item.name, "ts": item.start, "dur": item.end - item.start} | ({"args": args} if args else {})

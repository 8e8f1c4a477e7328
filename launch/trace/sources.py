"""The parts of a run's trace as sources of merge.py: PyTorch's and TensorFlow's profiles, Horovod's timeline, MPI events, steps."""

import math
import re
from typing import NamedTuple

from launch.trace import chrome, clocks, horovod_timeline
from launch.trace.horovod_timeline import Cycle, Negotiation
from launch.trace.merge import Lanes, Placed, Source
from launch.trace.xplane import STEP

# The collective itself, as PyTorch's profiler names it: in Gloo's own threads, and on the GPU.
GLOO = "gloo:"
NCCL_KERNEL = re.compile(r"nccl(Dev)?Kernel", re.IGNORECASE)
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
ELEMENT_BYTES = {"float": 4, "double": 8, "c10::Half": 2, "c10::BFloat16": 2, "int": 4, "long int": 8, "unsigned char": 1, "signed char": 1}
# Rounding of both clocks to microseconds; a thread that is stopped between their two readings is not in it.
HOROVOD_ERROR_MICROSECONDS = 2.0


def is_collective(name):
    """Whether an event of PyTorch's profiler with this name is a collective itself, and not a call of one."""
    return name.startswith(GLOO) or NCCL_KERNEL.search(name) is not None


def spans(path, rank):
    """The steps of a rank, and its waits for data, from the file that profiling.py writes."""
    origin = chrome.value(path, "metadata.origin_nanoseconds", 0)
    placed = (Placed(rank, "data", "steps", event) for event in chrome.events(path))
    return Source(f"steps of rank {rank}", rank, origin, 0.0, 1.0, "the host's clock itself", placed)


class Steps(NamedTuple):
    """Of the loop's steps, by number, when the one before had ended and when this one began; microseconds since the epoch."""

    before: dict[int, float]
    after: dict[int, float]


def steps_in(span_events, origin_nanoseconds):
    """The Steps in the events of the file that profiling.py writes."""
    before, after = {}, {}
    for event in span_events:
        if event["name"] == "step":
            number, start = event["args"]["step"], origin_nanoseconds / 1000 + event["ts"]
            after[number], before[number + 1] = start, start + event["dur"]
    return Steps(before, after)


class _Survey(NamedTuple):
    """What must be known of a profile before it is read: its first time, Gloo's threads, and where steps begin."""

    starts_at: float
    gloo_threads: set
    steps: dict[int, float]


def _survey(path, on_cut, wanted=lambda event: True):
    """The _Survey of the events that are wanted."""
    starts_at, gloo_threads, steps = math.inf, set(), {}
    for event in chrome.events(path, on_cut):
        if event.get("ph") == "X" and wanted(event):
            starts_at = min(starts_at, event["ts"])
            name = event["name"]
            if name.startswith(GLOO):
                gloo_threads.add(event["tid"])
            elif name.startswith(STEP):
                steps[int(name.partition("#")[2])] = event["ts"]
    return _Survey(0.0 if starts_at == math.inf else starts_at, gloo_threads, steps)


def _wanted(event):
    return event.get("cat") in ("cpu_op", "user_annotation", *ON_GPU)


def _compared(survey, base_nanoseconds, steps):
    """(error in microseconds, note) of a profiler's clock, compared with the host's where both tell when steps begin.

    The profiler's step begins after the loop's step before it has ended, and before the loop's own begins.
    """
    seen = {number: base_nanoseconds / 1000 + ts for number, ts in survey.steps.items()}
    error = clocks.error_microseconds(seen, *steps) if steps else None
    return error, "not compared with the host's clock" if error is None else "at most; compared with the host's clock at each step"


def torch(path, rank, steps=None, on_cut=None):
    """A rank's trace of PyTorch's profiler: operators as compute, Gloo's and NCCL's work as collectives, memory as a counter.

    With `steps` (Steps) the profiler's clock is compared with the host's.
    """
    base = chrome.value(path, "baseTimeNanoseconds", 0)
    survey = _survey(path, on_cut, _wanted)
    events = _torch_events(path, rank, survey.gloo_threads)
    return Source(f"PyTorch's profiler of rank {rank}", rank, base, survey.starts_at, *_compared(survey, base, steps), events)


def _torch_events(path, rank, gloo_threads):
    for event in chrome.events(path):
        phase = event.get("ph")
        if phase == "X" and _wanted(event):
            kept = {"ph": "X", "name": event["name"], "ts": event["ts"], "dur": event["dur"]}
            if event["name"].startswith(GLOO) and (size := size_bytes(event.get("args", {}))):
                kept["args"] = {"bytes": size}
            yield Placed(rank, *_torch_track(event, gloo_threads), kept)
        elif phase == "i" and event.get("name") == "[memory]":
            allocated = event["args"].get("Total Allocated", 0)
            yield Placed(rank, "compute", "memory", {"ph": "C", "name": "allocated bytes", "ts": event["ts"], "args": {"bytes": allocated}})


def _torch_track(event, gloo_threads):
    """(kind, track) of an event of PyTorch's profiler."""
    if event["cat"] in ON_GPU:
        collective = NCCL_KERNEL.search(event["name"])
        return ("collectives", f"NCCL, stream {event['tid']}") if collective else ("compute", f"GPU stream {event['tid']}")
    if event["tid"] in gloo_threads:
        return "collectives", f"Gloo, thread {event['tid']}"
    return "compute", f"PyTorch, thread {event['tid']}"


def size_bytes(args):
    """Bytes that a rank gives into a collective, from the shapes and types of its inputs; 0 where they are not told."""
    total = 0
    for kind, dims in zip(args.get("Input type", []), args.get("Input Dims", []), strict=False):
        if kind in ELEMENT_BYTES and all(isinstance(length, int) for length in dims):
            total += ELEMENT_BYTES[kind] * math.prod(dims)
    return total


def tensorflow(path, rank, steps=None, on_cut=None):
    """A rank's trace of TensorFlow's profiler, as xplane.py has converted it. With `steps` its clock is compared with the host's."""
    base = chrome.value(path, "metadata.origin_nanoseconds", 0)
    survey = _survey(path, on_cut)
    events = map(_with_own_track_for_steps, _by_thread(chrome.events(path), rank, "compute", "TensorFlow"))
    return Source(f"TensorFlow's profiler of rank {rank}", rank, base, survey.starts_at, *_compared(survey, base, steps), events)


def _with_own_track_for_steps(placed):
    """The steps that profiling.py marks begin inside spans that Keras marks, and end inside others."""
    return placed._replace(kind="data", track="TensorFlow's steps") if placed.event["name"].startswith(STEP) else placed


def mpi(events, rank, starts_at, error_microseconds, origin_nanoseconds=0):
    """A rank's MPI calls: any Chrome events, X or B and E, whose ts are microseconds since the epoch, or since another origin.

    `starts_at` is the least ts, error_microseconds how far they may be from the host's clock, None where that is not known.
    """
    placed = _by_thread(chrome.completed(events), rank, "MPI", "thread")
    return Source(f"MPI calls of rank {rank}", rank, origin_nanoseconds, starts_at, error_microseconds, "as the interposer tells", placed)


def _by_thread(events, rank, kind, otherwise):
    """The events with a track for each of their threads, named as these are, with their numbers where names are the same."""
    names = {}
    for event in events:
        thread = event.get("pid"), event.get("tid")
        if event["ph"] != "M":
            yield Placed(rank, kind, names.get(thread, f"{otherwise} {thread[1]}"), event)
        elif event["name"] == "thread_name":
            name = event["args"]["name"]
            taken = any(name == other for of, other in names.items() if of != thread)
            names[thread] = f"{name}, thread {thread[1]}" if taken else name


def horovod(path, on_cut=None, also=None):
    """Horovod's timeline: collectives and negotiations on rank 0, and on each rank when rank 0 heard that it was ready.

    `also`, a function, is given each thing that is read, so that a large file is read once. None for a timeline that does
    not tell when it began.
    """
    origin = horovod_timeline.start_microseconds(chrome.events(path))
    if origin is None:
        return None
    placed = horovod_events(horovod_timeline.read(chrome.events(path, on_cut)), also)
    note = "Horovod's steady clock, set beside the host's when it began; it tells microseconds"
    return Source("Horovod's timeline", 0, origin * 1000, 0.0, HOROVOD_ERROR_MICROSECONDS, note, placed)


def horovod_events(found, also=None):
    """Yields what horovod_timeline.read yields as events with their places."""
    operations, negotiations = Lanes(), Lanes()
    for one in found:
        if also:
            also(one)
        if isinstance(one, Cycle):
            mark = {"ph": "i", "s": "t", "name": "CYCLE_START", "ts": one.start, "args": {"tensors": one.num_tensors}}
            yield Placed(0, "collectives", "Horovod cycles", mark)
            continue
        unfinished = {} if one.finished else {"unfinished": True}
        if isinstance(one, Negotiation):
            track = "Horovod negotiation" + _nth(negotiations.lane_for(one.start, one.end))
            yield Placed(0, "collectives", track, _lasting(one, {"tensor": one.tensor} | unfinished))
            for rank, ts in one.ready.items():
                ready = {"ph": "i", "s": "t", "name": f"ready: {one.tensor}", "ts": ts}
                yield Placed(rank, "collectives", "Horovod: rank 0 hears of this rank", ready)
            continue
        track = "Horovod" + _nth(operations.lane_for(one.start, one.end))
        told = {"tensors": len(one.tensors), "first": one.tensors[0]} | ({"bytes": one.size_bytes} if one.size_bytes else {})
        yield Placed(0, "collectives", track, _lasting(one, told | unfinished))
        for activity in one.activities:
            yield Placed(0, "collectives", track, _lasting(activity, {}))


def _nth(lane):
    return f" {lane + 1}" if lane else ""


def _lasting(one, args):
    return {"ph": "X", "name": one.name, "ts": one.start, "dur": one.end - one.start} | ({"args": args} if args else {})

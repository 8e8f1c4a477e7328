"""Horovod's timeline: what rank 0 saw of each tensor, from the first rank that had it to the sum. Pure, over streams of events.

Layout, seen in files of Horovod 0.28.1: each tensor is a `pid` from 1, named by an M event; pid 0's M event holds the
epoch time of ts 0. `B NEGOTIATE_<OP>`, an X named by the rank, of duration 0, as rank 0 hears that this rank is ready,
`E`. `B <OP>`, in it activities as B and E, and an `E` with the tensor's dtype and shape. Tensors that are fused into one
buffer have the same activities at the same time. A mark CYCLE_START for each of Horovod's cycles, if asked for, has no pid.
"""

import re
from collections import Counter
from typing import NamedTuple

# Ranks that are ready within one cycle (HOROVOD_CYCLE_TIME: 1 ms) are heard together, in the order of the ranks.
TOGETHER_MICROSECONDS = 1000
NEGOTIATE = "NEGOTIATE_"
# Each tensor of a buffer waits for itself; all other activities are the buffer's.
WAITS = ("WAIT_FOR_DATA", "WAIT_FOR_OTHER_TENSOR_DATA")
DTYPE_BYTES = {
    "uint8": 1, "int8": 1, "bool": 1, "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "int64": 8,
    "float64": 8,
}  # fmt: skip


class Negotiation(NamedTuple):
    """One tensor, from the first rank that had it until all had; microseconds since the timeline's start.

    `ready` is when rank 0 heard of each rank. Horovod tells that only for tensors that are not in its cache.
    """

    tensor: str
    name: str
    start: int
    end: int
    ready: dict[int, int]
    finished: bool


class Activity(NamedTuple):
    """Something done with one buffer; microseconds since the timeline's start."""

    name: str
    start: int
    end: int


class Operation(NamedTuple):
    """One buffer's collective: its tensors, their bytes (None where not told), what was done; microseconds since the start."""

    name: str
    start: int
    end: int
    tensors: tuple[str, ...]
    size_bytes: int | None
    activities: tuple[Activity, ...]
    finished: bool


class Cycle(NamedTuple):
    """One of Horovod's cycles, and how many tensors it brought to their collective; microseconds since the start."""

    start: int
    end: int
    num_tensors: int


def start_microseconds(events):
    """The epoch time of a timeline's ts 0, in microseconds; None where it does not tell, as older Horovod.

    Reads no further than the metadata at the beginning.
    """
    for event in events:
        if event.get("ph") != "M":
            return None
        if found := event.get("args", {}).get("start_time_since_epoch_in_micros"):
            return found
    return None


class _Buffer:
    """What is known so far of a buffer and its tensors, which are `pid`s."""

    def __init__(self, first_activity):
        self.first_activity = first_activity
        self.closed = False
        self.members = []
        self.left = set()
        self.spans = {}
        self.size_bytes = 0
        self.end = 0

    def add(self, pid):
        self.members.append(pid)
        self.left.add(pid)

    def cover(self, name, start, end):
        found = self.spans.get(name, (start, end))
        self.spans[name] = min(found[0], start), max(found[1], end)


class _Tensor:
    """Where one tensor stands: what is open, as (name, ts), and its buffer in the operation that is open."""

    def __init__(self):
        self.open = []
        self.ready = {}
        self.buffer = None
        self.waits = []


def read(events):
    """Yields Negotiation, Operation and Cycle, each when it has ended, from a timeline's events.

    Memory is bounded by the number of tensors. What the file leaves open ends with its last event, not `finished`; an
    end without a beginning is left out.
    """
    names, tensors = {}, {}
    forming = None
    cycle_start, num_tensors, last = None, 0, 0
    for event in events:
        phase = event["ph"]
        if phase == "M":
            if event["name"] == "process_name" and "name" in event.get("args", {}):
                names[event["pid"]] = event["args"]["name"]
            continue
        ts = event["ts"]
        last = max(last, ts)
        if phase == "i":
            if cycle_start is not None:
                yield Cycle(cycle_start, ts, num_tensors)
            cycle_start, num_tensors = ts, 0
            continue
        pid = event["pid"]
        tensor = tensors.get(pid)
        if tensor is None:
            tensor = tensors[pid] = _Tensor()
        if phase == "B":
            name = event["name"]
            if not tensor.open:
                num_tensors += not name.startswith(NEGOTIATE)
            elif tensor.buffer is None and name not in WAITS:
                if forming is None or forming.closed or forming.first_activity != name:
                    forming = _Buffer(name)
                forming.add(pid)
                tensor.buffer = forming
                for wait in tensor.waits:
                    forming.cover(*wait)
            tensor.open.append((name, ts))
        elif phase == "X":
            tensor.ready[int(event["name"])] = ts
        elif phase == "E" and tensor.open:
            name, start = tensor.open.pop()
            if tensor.open:
                _end_activity(tensor, name, start, ts)
            elif name.startswith(NEGOTIATE):
                yield Negotiation(names.get(pid, str(pid)), name, start, ts, tensor.ready, True)
                tensor.ready = {}
            else:
                yield from _end_operation(names, tensors, pid, (name, start, ts), size_of(event.get("args", {})))
    yield from _left_open(names, tensors, last)


def _end_activity(tensor, name, start, end):
    if tensor.buffer is None:
        tensor.waits.append((name, start, end))
    else:
        # The tensors of a buffer begin an activity one after the other, and only then do they end it.
        tensor.buffer.closed = True
        tensor.buffer.cover(name, start, end)


def _end_operation(names, tensors, pid, span, size_bytes):
    """Yields the Operation if this was the last of its buffer's tensors to end it."""
    name, start, end = span
    tensor, buffer = tensors[pid], tensors[pid].buffer
    if buffer is None:
        activities = tuple(Activity(*wait) for wait in tensor.waits)
        yield Operation(name, start, end, (names.get(pid, str(pid)),), size_bytes, activities, True)
    else:
        buffer.closed = True
        buffer.end = max(buffer.end, end)
        buffer.cover("", start, end)
        buffer.size_bytes = None if None in (size_bytes, buffer.size_bytes) else buffer.size_bytes + size_bytes
        buffer.left.discard(pid)
        if not buffer.left:
            yield _operation(names, name, buffer, True)
    tensor.buffer, tensor.waits, tensor.ready = None, [], {}


def _operation(names, name, buffer, finished):
    start, end = buffer.spans.pop("")
    activities = tuple(sorted((Activity(what, *span) for what, span in buffer.spans.items()), key=lambda activity: activity.start))
    members = tuple(names.get(pid, str(pid)) for pid in buffer.members)
    return Operation(name, start, end, members, buffer.size_bytes if finished else None, activities, finished)


def _left_open(names, tensors, last):
    """Yields what is open where the file ends, as if it had ended there."""
    cut_off = {}
    for pid, tensor in tensors.items():
        if not tensor.open:
            continue
        (name, start), *activities = tensor.open
        if name.startswith(NEGOTIATE):
            yield Negotiation(names.get(pid, str(pid)), name, start, last, tensor.ready, False)
        elif tensor.buffer is None:
            yield Operation(name, start, last, (names.get(pid, str(pid)),), None, tuple(Activity(*wait) for wait in tensor.waits), False)
        else:
            tensor.buffer.cover("", start, last)
            for activity, begun in activities:
                tensor.buffer.cover(activity, begun, last)
            cut_off[id(tensor.buffer)] = (name, tensor.buffer)
    for name, buffer in cut_off.values():
        yield _operation(names, name, buffer, False)


def size_of(args):
    """Bytes of a tensor from the `dtype` and `shape` (as in `[128, 9216]`) of its end event; None where they are not told."""
    width = DTYPE_BYTES.get(args.get("dtype"))
    if width is None or "shape" not in args:
        return None
    count = 1
    for length in re.findall(r"\d+", args["shape"]):
        count *= int(length)
    return width * count


class Wait(NamedTuple):
    """How long tensors of one name waited until all ranks had them."""

    num_negotiations: int
    total_seconds: float
    max_seconds: float


class Lateness(NamedTuple):
    """How often a rank was the last by more than a cycle, and how long that kept the first rank waiting."""

    num_last: int
    total_seconds: float
    max_seconds: float


class Summary(NamedTuple):
    """A timeline in numbers.

    `waits` by tensor; `lateness` by rank, among the `num_compared` negotiations of `num_negotiations` in which the timeline
    tells when at least two ranks were ready; `tensors_per_buffer` counts buffers by their number of tensors;
    `operation_seconds` and `activity_seconds` count each buffer once. Cycles are None where they were not marked.
    """

    seconds: float
    num_negotiations: int
    num_compared: int
    waits: dict[str, Wait]
    lateness: dict[int, Lateness]
    num_operations: dict[str, int]
    tensors_per_buffer: dict[int, int]
    max_buffer_bytes: int
    total_bytes: int
    operation_seconds: dict[str, float]
    activity_seconds: dict[str, float]
    num_cycles: int | None
    num_used_cycles: int | None
    mean_cycle_seconds: float | None
    num_unfinished: int


def summarize(found):
    """The Summary of what `read` yields."""
    waits, lateness = {}, {}
    num_operations, tensors_per_buffer, operation_seconds, activity_seconds = Counter(), Counter(), Counter(), Counter()
    num_negotiations = num_compared = num_cycles = num_used = num_unfinished = max_bytes = total_bytes = 0
    cycle_microseconds = last = 0
    for one in found:
        last = max(last, one.end)
        if isinstance(one, Cycle):
            num_cycles += 1
            num_used += one.num_tensors > 0
            cycle_microseconds += one.end - one.start
            continue
        num_unfinished += not one.finished
        seconds = (one.end - one.start) / 1e6
        if isinstance(one, Operation):
            num_operations[one.name] += 1
            tensors_per_buffer[len(one.tensors)] += 1
            max_bytes, total_bytes = max(max_bytes, one.size_bytes or 0), total_bytes + (one.size_bytes or 0)
            operation_seconds[one.name] += seconds
            for activity in one.activities:
                activity_seconds[activity.name] += (activity.end - activity.start) / 1e6
            continue
        num_negotiations += 1
        waits[one.tensor] = _added(waits.get(one.tensor, Wait(0, 0.0, 0.0)), seconds)
        if len(one.ready) > 1:
            num_compared += 1
            rank = max(one.ready, key=one.ready.get)
            spread = one.ready[rank] - min(one.ready.values())
            if spread > TOGETHER_MICROSECONDS:
                lateness[rank] = _added(lateness.get(rank, Lateness(0, 0.0, 0.0)), spread / 1e6)
    return Summary(
        last / 1e6, num_negotiations, num_compared, waits, lateness, dict(num_operations), dict(tensors_per_buffer), max_bytes, total_bytes,
        dict(operation_seconds), dict(activity_seconds), num_cycles or None, num_used if num_cycles else None,
        cycle_microseconds / num_cycles / 1e6 if num_cycles else None, num_unfinished,
    )  # fmt: skip


def _added(sums, seconds):
    return type(sums)(sums[0] + 1, sums[1] + seconds, max(sums[2], seconds))


def told(summary, num_tensors=5):
    """A Summary as lines of text, with the tensors that waited longest."""
    lines = [f"Horovod's timeline of {summary.seconds:.2f} s, as rank 0 saw it"]
    buffers = sum(summary.tensors_per_buffer.values())
    if buffers:
        tensors = sum(size * count for size, count in summary.tensors_per_buffer.items())
        lines.append(
            f"{buffers} collectives ({', '.join(f'{count} {name}' for name, count in summary.num_operations.items())}) of {tensors} tensors: "
            f"{tensors / buffers:.1f} tensors and {summary.total_bytes / buffers / 1024:.1f} KiB each, {summary.max_buffer_bytes / 1024:.1f} KiB at most"
        )
    for name, seconds in sorted(summary.activity_seconds.items(), key=lambda item: -item[1]):
        lines.append(f"  {name:<28} {seconds:9.3f} s")
    waited = sorted(summary.waits.items(), key=lambda item: -item[1].total_seconds)
    lines.append(f"{summary.num_negotiations} negotiations; longest waits until every rank was ready:")
    for name, wait in waited[:num_tensors]:
        each = wait.total_seconds / wait.num_negotiations
        lines.append(f"  {name:<40} {wait.num_negotiations:5d} times {1e3 * each:8.2f} ms on average {1e3 * wait.max_seconds:8.2f} ms at most")
    lines.append(f"when each rank was ready is told for {summary.num_compared} of {summary.num_negotiations} negotiations (not for cached ones)")
    for rank, late in sorted(summary.lateness.items(), key=lambda item: -item[1].num_last):
        each = late.total_seconds / late.num_last
        lines.append(f"  rank {rank} was last {late.num_last} times, by {1e3 * each:.2f} ms on average, {1e3 * late.max_seconds:.2f} ms at most")
    if summary.num_cycles:
        used = summary.num_used_cycles / summary.num_cycles
        lines.append(f"{summary.num_cycles} cycles of {1e3 * summary.mean_cycle_seconds:.2f} ms on average, {used:.0%} with something to do")
    if summary.num_unfinished:
        lines.append(f"{summary.num_unfinished} were not finished where the timeline ends")
    return lines

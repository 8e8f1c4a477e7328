"""Horovod's timeline: rank 0's view of each tensor, from its negotiation to the end of its collective. Pure, over streams of events.

Layout of the files of Horovod 0.28.1: each tensor is a `pid` from 1, named by an M event; pid 0's M event holds the epoch
time of ts 0. `B NEGOTIATE_<OP>`; an X of duration 0, named by the rank, when rank 0 receives that this rank is ready; `E`. Then
`B <OP>`, activities as B and E, and an `E` with the tensor's dtype and shape. Tensors fused into one buffer have the same
activities at the same time. CYCLE_START marks each of Horovod's cycles, if enabled, and has no pid.
"""

import re
from collections import Counter, defaultdict
from typing import NamedTuple

# The timeline's name in a run's trace folder.
FILE = "horovod_timeline.json"

# Rank 0 receives the ranks that are ready within one cycle (HOROVOD_CYCLE_TIME: 1 ms) together, in the order of the ranks.
TOGETHER_MICROSECONDS = 1000
NEGOTIATE = "NEGOTIATE_"
# Activities of each single tensor of a buffer; all others are of the buffer.
WAITS = ("WAIT_FOR_DATA", "WAIT_FOR_OTHER_TENSOR_DATA")
DTYPE_BYTES = {
    "uint8": 1, "int8": 1, "bool": 1, "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "int64": 8,
    "float64": 8,
}  # fmt: skip


class Negotiation(NamedTuple):
    """The negotiation of one tensor, from the first ready rank to the last; microseconds since the timeline's start.

    `ready`: when rank 0 received each rank's readiness. Horovod has that only for tensors that are not in its cache.
    """

    tensor: str
    name: str
    start: int
    end: int
    ready: dict[int, int]
    finished: bool


class Activity(NamedTuple):
    """An activity on one buffer; microseconds since the timeline's start."""

    name: str
    start: int
    end: int


class Operation(NamedTuple):
    """The collective of one buffer: tensors, bytes (None where unknown), activities; microseconds since the start."""

    name: str
    start: int
    end: int
    tensors: tuple[str, ...]
    size_bytes: int | None
    activities: tuple[Activity, ...]
    finished: bool


class Cycle(NamedTuple):
    """One of Horovod's cycles, and the number of tensors whose collective it started; microseconds since the start."""

    start: int
    end: int
    num_tensors: int


def start_microseconds(events):
    """Returns the epoch time of a timeline's ts 0, in microseconds; None in files of old versions of Horovod.

    Reads only the metadata at the beginning.
    """
    for event in events:
        if event.get("ph") != "M":
            return None
        if microseconds := event.get("args", {}).get("start_time_since_epoch_in_micros"):
            return microseconds
    return None


def read(events):
    """Yields the Negotiations, Operations and Cycles of a timeline's events, each at its end.

    Memory is bounded by the number of tensors. Spans left open end with the file's last event and are not `finished`; an
    end without a beginning is dropped.
    """
    reader = _Reader()
    handlers = {"M": reader.metadata, "i": reader.mark, "B": reader.begin, "X": reader.tick, "E": reader.end}
    for event in events:
        handle = handlers.get(event.get("ph"))
        if handle and (item := handle(event)):
            yield item
    yield from reader.left_open()


class _Buffer:
    """The state of a buffer and its tensors, given by `pid`; `closed` once no tensor can join."""

    def __init__(self, first_activity):
        self.first_activity = first_activity
        self.closed = False
        self.members, self.left = [], set()
        self.spans = {}
        self.size_bytes = 0

    def add(self, pid, waits):
        self.members.append(pid)
        self.left.add(pid)
        for wait in waits:
            self.cover(*wait)

    def cover(self, name, start, end):
        """Extends the span of an activity; the name is empty for the collective as a whole."""
        span = self.spans.get(name, (start, end))
        self.spans[name] = min(span[0], start), max(span[1], end)


class _Tensor:
    """The state of a tensor: open spans as (name, ts), ready ranks, and its buffer once it is in one."""

    def __init__(self):
        self.open, self.ready, self.buffer, self.waits = [], {}, None, []


class _Reader:
    """The state of reading a timeline; each method takes an event and returns the item that ends with it, or None."""

    def __init__(self):
        self.names = {}
        self.tensors = defaultdict(_Tensor)
        self.forming = _Buffer(None)
        self.cycle_start, self.num_tensors, self.last = None, 0, 0

    def metadata(self, event):
        if event["name"] == "process_name" and "name" in event.get("args", {}):
            self.names[event["pid"]] = event["args"]["name"]

    def mark(self, event):
        ended = None if self.cycle_start is None else Cycle(self.cycle_start, event["ts"], self.num_tensors)
        self.cycle_start, self.num_tensors, self.last = event["ts"], 0, max(self.last, event["ts"])
        return ended

    def begin(self, event):
        pid, name = event["pid"], event["name"]
        tensor = self.tensors[pid]
        self.last = max(self.last, event["ts"])
        if not tensor.open:
            self.num_tensors += not name.startswith(NEGOTIATE)
        elif tensor.buffer is None and name not in WAITS:
            # All tensors of a buffer begin an activity before any of them ends it.
            if self.forming.closed or self.forming.first_activity != name:
                self.forming = _Buffer(name)
            self.forming.add(pid, tensor.waits)
            tensor.buffer = self.forming
        tensor.open.append((name, event["ts"]))

    def tick(self, event):
        if event["name"].isdecimal():
            self.tensors[event["pid"]].ready[int(event["name"])] = event["ts"]

    def end(self, event):
        pid, ts = event["pid"], event["ts"]
        tensor = self.tensors[pid]
        if not tensor.open:
            return None
        self.last = max(self.last, ts)
        name, start = tensor.open.pop()
        if tensor.open:
            if tensor.buffer is None:
                tensor.waits.append((name, start, ts))
            else:
                tensor.buffer.closed = True
                tensor.buffer.cover(name, start, ts)
            return None
        self.tensors[pid] = _Tensor()
        if name.startswith(NEGOTIATE):
            return Negotiation(self._name(pid), name, start, ts, tensor.ready, True)
        size_bytes = size_of(event.get("args", {}))
        if tensor.buffer is None:
            return self._single(pid, tensor, name, start, ts, size_bytes, True)
        return self._leave_buffer(pid, tensor.buffer, (name, start, ts), size_bytes)

    def left_open(self):
        """Yields the spans that are open at the end of the file, ended there."""
        unfinished = {}
        for pid, tensor in self.tensors.items():
            if not tensor.open:
                continue
            (name, start), *activities = tensor.open
            if name.startswith(NEGOTIATE):
                yield Negotiation(self._name(pid), name, start, self.last, tensor.ready, False)
            elif tensor.buffer is None:
                yield self._single(pid, tensor, name, start, self.last, None, False)
            else:
                tensor.buffer.cover("", start, self.last)
                for activity, begun in activities:
                    tensor.buffer.cover(activity, begun, self.last)
                unfinished[id(tensor.buffer)] = name, tensor.buffer
        for name, buffer in unfinished.values():
            yield self._operation(name, buffer, False)

    def _name(self, pid):
        return self.names.get(pid, str(pid))

    def _leave_buffer(self, pid, buffer, span, size_bytes):
        """Returns the Operation, if this was the last tensor of its buffer to end."""
        name, start, end = span
        buffer.closed = True
        buffer.cover("", start, end)
        buffer.size_bytes = None if None in (size_bytes, buffer.size_bytes) else buffer.size_bytes + size_bytes
        buffer.left.discard(pid)
        return None if buffer.left else self._operation(name, buffer, True)

    def _single(self, pid, tensor, name, start, end, size_bytes, finished):
        """Returns the Operation of a tensor whose only activities are waits."""
        activities = tuple(Activity(*wait) for wait in tensor.waits)
        return Operation(name, start, end, (self._name(pid),), size_bytes, activities, finished)

    def _operation(self, name, buffer, finished):
        start, end = buffer.spans.pop("")
        activities = tuple(sorted((Activity(what, *span) for what, span in buffer.spans.items()), key=lambda activity: activity.start))
        members = tuple(self._name(pid) for pid in buffer.members)
        return Operation(name, start, end, members, buffer.size_bytes if finished else None, activities, finished)


def size_of(args):
    """Returns the bytes of a tensor from the `dtype` and `shape` (as in `[128, 9216]`) of its end event; None where unknown."""
    width = DTYPE_BYTES.get(args.get("dtype"))
    if width is None or "shape" not in args:
        return None
    count = 1
    for length in re.findall(r"\d+", args["shape"]):
        count *= int(length)
    return width * count


class Wait(NamedTuple):
    """How long tensors of one name waited until all ranks were ready."""

    num_negotiations: int
    total_seconds: float
    max_seconds: float


class Lateness(NamedTuple):
    """How often a rank was the last by more than a cycle, and how long the first rank waited for it."""

    num_last: int
    total_seconds: float
    max_seconds: float


class Summary(NamedTuple):
    """The totals of a timeline.

    `waits` by tensor. `lateness` by rank, over the `num_compared` of `num_negotiations` in which the readiness of at least two
    ranks is known. `tensors_per_buffer`: the number of buffers by number of tensors. `operation_seconds` and `activity_seconds`
    count each buffer once. Cycles are None where they were not marked.
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


def summarize(items):
    """Returns the Summary of the items of `read`."""
    sums = Sums()
    for item in items:
        sums.add(item)
    return sums.summary()


class Sums:
    """Accumulates the items of `read` into a Summary."""

    def __init__(self):
        self.waits, self.lateness = {}, {}
        self.num_operations, self.tensors_per_buffer = Counter(), Counter()
        self.operation_seconds, self.activity_seconds = Counter(), Counter()
        self.num_negotiations = self.num_compared = self.num_unfinished = self.num_cycles = self.num_used_cycles = 0
        self.max_bytes = self.total_bytes = self.cycle_microseconds = self.last = 0

    def add(self, item):
        self.last = max(self.last, item.end)
        if isinstance(item, Cycle):
            self.num_cycles += 1
            self.num_used_cycles += item.num_tensors > 0
            self.cycle_microseconds += item.end - item.start
            return
        self.num_unfinished += not item.finished
        if isinstance(item, Operation):
            self._add_operation(item)
        else:
            self._add_negotiation(item)

    def _add_operation(self, operation):
        self.num_operations[operation.name] += 1
        self.tensors_per_buffer[len(operation.tensors)] += 1
        self.max_bytes = max(self.max_bytes, operation.size_bytes or 0)
        self.total_bytes += operation.size_bytes or 0
        self.operation_seconds[operation.name] += (operation.end - operation.start) / 1e6
        for activity in operation.activities:
            self.activity_seconds[activity.name] += (activity.end - activity.start) / 1e6

    def _add_negotiation(self, negotiation):
        self.num_negotiations += 1
        waited_seconds = (negotiation.end - negotiation.start) / 1e6
        self.waits[negotiation.tensor] = _added(self.waits.get(negotiation.tensor, Wait(0, 0.0, 0.0)), waited_seconds)
        if len(negotiation.ready) < 2:
            return
        self.num_compared += 1
        last = max(negotiation.ready, key=negotiation.ready.get)
        spread = negotiation.ready[last] - min(negotiation.ready.values())
        if spread > TOGETHER_MICROSECONDS:
            self.lateness[last] = _added(self.lateness.get(last, Lateness(0, 0.0, 0.0)), spread / 1e6)

    def summary(self):
        marked = self.num_cycles > 0
        return Summary(
            seconds=self.last / 1e6,
            num_negotiations=self.num_negotiations,
            num_compared=self.num_compared,
            waits=self.waits,
            lateness=self.lateness,
            num_operations=dict(self.num_operations),
            tensors_per_buffer=dict(self.tensors_per_buffer),
            max_buffer_bytes=self.max_bytes,
            total_bytes=self.total_bytes,
            operation_seconds=dict(self.operation_seconds),
            activity_seconds=dict(self.activity_seconds),
            num_cycles=self.num_cycles if marked else None,
            num_used_cycles=self.num_used_cycles if marked else None,
            mean_cycle_seconds=self.cycle_microseconds / self.num_cycles / 1e6 if marked else None,
            num_unfinished=self.num_unfinished,
        )


def _added(sums, seconds):
    return type(sums)(sums[0] + 1, sums[1] + seconds, max(sums[2], seconds))


def describe(summary, num_tensors=5):
    """Returns a Summary as lines of text, with the tensors of the longest waits."""
    lines = [f"Horovod's timeline of rank 0: {summary.seconds:.2f} s"]
    buffers = sum(summary.tensors_per_buffer.values())
    if buffers:
        tensors = sum(size * count for size, count in summary.tensors_per_buffer.items())
        kinds = ", ".join(f"{count} {name}" for name, count in summary.num_operations.items())
        mean_kib, max_kib = summary.total_bytes / buffers / 1024, summary.max_buffer_bytes / 1024
        lines.append(f"{buffers} collectives ({kinds}) of {tensors / buffers:.1f} tensors on average")
        lines.append(f"{mean_kib:.1f} KiB on average, {max_kib:.1f} KiB at most; time by activity:")
    for name, seconds in sorted(summary.activity_seconds.items(), key=lambda item: -item[1]):
        lines.append(f"  {name:<28} {seconds:9.3f} s")
    waited = sorted(summary.waits.items(), key=lambda item: -item[1].total_seconds)
    lines.append(f"{summary.num_negotiations} negotiations; longest waits for all ranks:")
    for name, wait in waited[:num_tensors]:
        each = wait.total_seconds / wait.num_negotiations
        lines.append(
            f"  {name:<40} {wait.num_negotiations:5d} times {1e3 * each:8.2f} ms on average {1e3 * wait.max_seconds:8.2f} ms at most"
        )
    lines.append(
        f"readiness by rank is known for {summary.num_compared} of {summary.num_negotiations} negotiations (those of uncached tensors)"
    )
    for rank, late in sorted(summary.lateness.items(), key=lambda item: -item[1].num_last):
        each = late.total_seconds / late.num_last
        lines.append(
            f"  rank {rank} was last {late.num_last} times, by {1e3 * each:.2f} ms on average, {1e3 * late.max_seconds:.2f} ms at most"
        )
    if summary.num_cycles:
        used = summary.num_used_cycles / summary.num_cycles
        lines.append(f"{summary.num_cycles} cycles of {1e3 * summary.mean_cycle_seconds:.2f} ms on average, {used:.0%} not idle")
    if summary.num_unfinished:
        lines.append(f"{summary.num_unfinished} not finished at the end of the timeline")
    return lines

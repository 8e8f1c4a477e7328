"""Horovod's timeline: rank 0's view of each tensor, from its negotiation to the end of its collective.

Layout of the files of Horovod 0.28.1: each tensor is a `pid` from 1, named by an M event; pid 0's M event holds the epoch
time of ts 0. `B NEGOTIATE_<OP>`; an X of duration 0, named by the rank, when rank 0 receives that this rank is ready; `E`. Then
`B <OP>`, activities as B and E, and an `E` with the tensor's dtype and shape. Tensors fused into one buffer have the same
activities at the same time.
"""

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

# The timeline's name in a run's trace folder.
FILE = "horovod_timeline.json"

NEGOTIATE = "NEGOTIATE_"
SHAPE = re.compile(r"\[[0-9, ]*\]")
# Activities of each single tensor of a buffer; all others are of the buffer.
WAITS = ("WAIT_FOR_DATA", "WAIT_FOR_OTHER_TENSOR_DATA")
DTYPE_BYTES = {
    "uint8": 1, "int8": 1, "bool": 1, "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "int64": 8,
    "float64": 8,
}  # fmt: skip


class Negotiation(NamedTuple):
    """The negotiation of one tensor, from the first ready rank to the last; microseconds since the timeline's start.

    `ready` is when rank 0 received each rank's readiness. Horovod has that only for tensors that are not in its cache.
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


Item = Negotiation | Operation
# An event of Chrome's trace format, and the tensor in it.
Event = dict[str, Any]
Pid = int | str


def start_microseconds(events: Iterable[Event]) -> int | None:
    """Reads the epoch time of a timeline's ts 0, in microseconds; None in files of old versions of Horovod.

    Reads only the metadata at the beginning.
    """
    metadata = itertools.takewhile(lambda event: event.get("ph") == "M", events)
    times = (event.get("args", {}).get("start_time_since_epoch_in_micros") for event in metadata)
    return next((time for time in times if time), None)


def read(events: Iterable[Event]) -> Iterator[Item]:
    """Yields what a timeline's events describe, each item at its end.

    Memory is bounded by the number of tensors. Spans left open end with the file's last event and are not `finished`; an
    end without a beginning is dropped.
    """
    reader = _Reader()
    handlers = {"M": reader.metadata, "B": reader.begin, "X": reader.tick, "E": reader.end}
    for event in events:
        handle = handlers.get(event.get("ph", ""))
        if handle and (item := handle(event)):
            yield item
    yield from reader.left_open()


class _Buffer:
    """The tensors of a collective, by `pid`, and the spans of its activities; `is_closed` once no tensor can join."""

    def __init__(self, first_activity: str | None = None) -> None:
        self.first_activity, self.is_closed = first_activity, False
        self.pids: list[Pid] = []
        self.open_pids: set[Pid] = set()
        self.spans: dict[str, tuple[int, int]] = {}
        self.size_bytes: int | None = 0

    def add(self, pid: Pid, tensor: "_Tensor") -> None:
        self.pids.append(pid)
        self.open_pids.add(pid)
        tensor.buffer = self
        for wait in tensor.waits:
            self.cover(*wait)

    def cover(self, name: str, start: int, end: int) -> None:
        """Extends the span of an activity; the name is empty for the collective as a whole."""
        span = self.spans.get(name, (start, end))
        self.spans[name] = min(span[0], start), max(span[1], end)


class _Tensor:
    """The state of a tensor: its open spans, each with its start, the ready ranks, its waits, and its buffer once it is in one."""

    def __init__(self) -> None:
        self.open: list[tuple[str, int]] = []
        self.ready: dict[int, int] = {}
        self.waits: list[tuple[str, int, int]] = []
        self.buffer: _Buffer | None = None


class _Reader:
    """The state of reading a timeline; each method takes an event and returns the item that ends with it, or None."""

    def __init__(self) -> None:
        self.names: dict[Pid, str] = {}
        self.tensors: defaultdict[Pid, _Tensor] = defaultdict(_Tensor)
        self.forming = _Buffer()
        self.last, self.is_over = 0, False

    def metadata(self, event: Event) -> None:
        if event["name"] == "process_name" and "name" in event.get("args", {}):
            self.names[event["pid"]] = str(event["args"]["name"])

    def begin(self, event: Event) -> None:
        pid, name = event["pid"], event["name"]
        tensor = self.tensors[pid]
        self.last = max(self.last, event["ts"])
        if tensor.open and tensor.buffer is None and name not in WAITS:
            # All tensors of a buffer begin an activity before any of them ends it.
            if self.forming.is_closed or self.forming.first_activity != name:
                self.forming = _Buffer(name)
            self.forming.add(pid, tensor)
        tensor.open.append((name, event["ts"]))

    def tick(self, event: Event) -> None:
        if event["name"].isdecimal():
            self.tensors[event["pid"]].ready[int(event["name"])] = event["ts"]

    def end(self, event: Event) -> Negotiation | Operation | None:
        pid, ts = event["pid"], event["ts"]
        tensor = self.tensors[pid]
        if not tensor.open:
            return None
        self.last = max(self.last, ts)
        name, start = tensor.open.pop()
        if not tensor.open:
            self.tensors[pid] = _Tensor()
            return self._ended(pid, tensor, name, start, ts, size_of(event.get("args", {})))
        if tensor.buffer is None:
            tensor.waits.append((name, start, ts))
        else:
            tensor.buffer.is_closed = True
            tensor.buffer.cover(name, start, ts)
        return None

    def _ended(self, pid: Pid, tensor: _Tensor, name: str, start: int, end: int, size_bytes: int | None) -> Negotiation | Operation | None:
        """Returns the Negotiation of a tensor, or the Operation if this was the last tensor of its buffer to end."""
        if name.startswith(NEGOTIATE):
            return Negotiation(self._name(pid), name, start, end, tensor.ready, not self.is_over)
        if (buffer := tensor.buffer) is None:
            buffer = _Buffer()
            buffer.add(pid, tensor)
        buffer.is_closed = True
        buffer.cover("", start, end)
        buffer.size_bytes = None if size_bytes is None or buffer.size_bytes is None else buffer.size_bytes + size_bytes
        buffer.open_pids.discard(pid)
        if buffer.open_pids:
            return None
        start, end = buffer.spans.pop("")
        activities = sorted((Activity(activity, *span) for activity, span in buffer.spans.items()), key=lambda activity: activity.start)
        return Operation(name, start, end, tuple(map(self._name, buffer.pids)), buffer.size_bytes, tuple(activities), not self.is_over)

    def left_open(self) -> Iterator[Item]:
        """Yields the spans that are open at the end of the file, ended there."""
        self.is_over = True
        for pid, tensor in list(self.tensors.items()):
            while tensor.open:
                if item := self.end({"pid": pid, "ts": self.last}):
                    yield item

    def _name(self, pid: Pid) -> str:
        return self.names.get(pid, str(pid))


def size_of(args: dict[str, Any]) -> int | None:
    """Computes the bytes of a tensor from the `dtype` and `shape` (as in `[128, 9216]`) of its end event; None where unknown."""
    dtype, shape = str(args.get("dtype")), str(args.get("shape"))
    if dtype not in DTYPE_BYTES or not SHAPE.fullmatch(shape):
        return None
    return DTYPE_BYTES[dtype] * math.prod(map(int, re.findall(r"\d+", shape)))

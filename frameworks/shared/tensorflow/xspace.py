"""TensorFlow's profiler over some steps of an epoch, and its trace in Chrome's format."""

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from common import chrome_trace
from common.trainer import PROFILED_STEP, Schedule

# A protocol buffer, whose class exists at run time alone.
XSpace = Any


@contextlib.contextmanager
def profiled(folder: Path, rank: int, schedule: Schedule) -> Iterator[Callable[[], None]]:
    """Gives the function to call after each step. Writes the kept steps as a Chrome trace.

    TensorFlow's own trace is an XSpace, a protocol buffer that the tensorflow package can read.
    """

    def profiled_steps() -> Generator[None]:
        first, end = schedule.wait + schedule.warmup, sum(schedule)
        yield from itertools.repeat(None, first)
        tf.profiler.experimental.start(raw)
        try:
            for number in range(first, end):
                with tf.profiler.experimental.Trace(f"{PROFILED_STEP}{number}"):
                    yield
        finally:
            tf.profiler.experimental.stop()
        yield from itertools.repeat(None)

    with tempfile.TemporaryDirectory(dir=folder) as raw:
        with contextlib.closing(profiled_steps()) as steps:
            next(steps)
            yield lambda: next(steps)
        for path in Path(raw).rglob("*.xplane.pb"):
            space: XSpace = xplane_pb2.XSpace()  # pyright: ignore[reportAttributeAccessIssue]: the class exists at run time alone
            space.ParseFromString(path.read_bytes())
            metadata = {"origin_nanoseconds": _start_nanoseconds(space), "host": next(iter(space.hostnames), None)}
            chrome_trace.write(folder / f"tensorflow.{rank}.json.gz", _events(space), metadata)


def _start_nanoseconds(space: XSpace) -> int:
    """Returns the epoch time of an XSpace's time 0: the stat `profile_start_time`; 0 where its times are epoch times."""
    for plane in space.planes:
        for stat in plane.stats:
            if plane.stat_metadata[stat.metadata_id].name == "profile_start_time":
                return stat.uint64_value or stat.int64_value
    return 0


def _events(space: XSpace) -> Iterator[chrome_trace.Event]:
    """Yields the spans of an XSpace as X events, in microseconds since its start. Its devices become processes, its lines threads."""
    for pid, plane in enumerate(space.planes):
        for tid, line in enumerate(plane.lines):
            track = {"pid": pid, "tid": tid}
            yield {"ph": "M", "name": "thread_name", **track, "args": {"name": line.display_name or line.name}}
            for event in line.events:
                if event.duration_ps:
                    metadata = plane.event_metadata[event.metadata_id]
                    start = line.timestamp_ns / 1e3 + event.offset_ps / 1e6
                    times = {"ts": start, "dur": event.duration_ps / 1e6}
                    yield {"ph": "X", "name": metadata.display_name or metadata.name, **times, **track}

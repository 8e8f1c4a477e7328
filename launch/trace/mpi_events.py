"""Reader of the interposer's event files: the start and duration of each call of a rank, as a source of the merged trace."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common.errors import UserError
from common.record.parts import Clock
from launch.trace.sources import Placed, Source

MAGIC = b"tandem mpi events 2\n"
# struct event of interposer/events.c.
CALL = np.dtype("i8, i8, i8, u2, u2, u4")
CALL.names = ("start_nanoseconds", "duration_nanoseconds", "size_bytes", "routine", "kind", "thread")
# enum trace_kind of interposer/trace.h.
KINDS = ("other", "payload", "control", "completion", "io", "nccl")


class Events(NamedTuple):
    """One rank's calls (CALL) in the order of their start, in nanoseconds since the epoch by the clock of the rank's node.

    `names` are those of the routines, by the index in `routine`.
    """

    rank: int
    num_dropped: int
    clock_error_nanoseconds: int
    names: tuple[str, ...]
    calls: np.recarray


def find(folder: Path) -> list[Path]:
    """Finds the event files in a folder."""
    return sorted(folder.glob("mpi_events.*.bin"))


def read(path: Path) -> Events:
    """Reads a file of events. Raises UserError where it is not an event file or is damaged."""
    try:
        with path.open("rb") as file:
            if file.readline() != MAGIC:
                raise UserError(f"{path} is not a file of MPI events; give files mpi_events.JOB.RANK.bin")
            return _events(json.loads(file.readline()), file.read())
    except OSError as problem:
        raise UserError(f"{path}: {problem.strerror}; give files mpi_events.JOB.RANK.bin") from None
    except (ValueError, LookupError, TypeError) as problem:
        raise UserError(f"{path} is truncated or damaged ({problem}); copy it again") from None


def _events(header: dict[str, Any], content: bytes) -> Events:
    """Makes the Events out of a file's header and the bytes after it."""
    if len(content) != header["num_events"] * CALL.itemsize:
        raise ValueError(f"it has {len(content) // CALL.itemsize} of {header['num_events']} events")
    calls = np.frombuffer(content, CALL)
    # A start of 0 marks a call that was being written when the process ended.
    calls = np.sort(calls[calls["start_nanoseconds"] != 0], order="start_nanoseconds", kind="stable").view(np.recarray)
    calls.start_nanoseconds += header["epoch_of_zero_nanoseconds"]
    names = tuple(header["routines"])
    if len(calls) and (calls.routine.max() >= len(names) or calls.kind.max() >= len(KINDS)):
        raise ValueError("its events have unknown routines or kinds")
    return Events(header["rank"], header["num_dropped"], header["clock_error_nanoseconds"], names, calls)


def source(events: Events) -> Source:
    """Makes a source of the merged trace out of a rank's calls, of which there is at least one."""
    origin_nanoseconds = int(events.calls.start_nanoseconds[0])
    clock = Clock(f"MPI calls of rank {events.rank}", events.clock_error_nanoseconds / 1000, "the clock of the node, read at the start")
    return Source(clock, events.rank, origin_nanoseconds, _placed(events, origin_nanoseconds), 0.0)


def _placed(events: Events, origin_nanoseconds: int) -> Iterator[Placed]:
    """Yields a rank's calls, on a track for each thread that calls MPI."""
    for start, duration, size_bytes, routine, kind, thread in events.calls.tolist():
        event = {
            "ph": "X", "name": events.names[routine], "cat": KINDS[kind], "ts": (start - origin_nanoseconds) / 1000,
            "dur": duration / 1000, "args": {"bytes": size_bytes},
        }  # fmt: skip
        yield Placed(events.rank, "MPI", f"thread {thread}", event)


def problem_of(events: Events) -> str | None:
    """Describes in a line that calls were dropped from a rank's file; None where none was."""
    if not events.num_dropped:
        return None
    calls = events.calls
    seconds = ((calls.start_nanoseconds + calls.duration_nanoseconds).max() - calls.start_nanoseconds[0]) / 1e9 if len(calls) else 0.0
    full = f"the buffer of MPI events was full {seconds:.1f} s after the first call"
    return f"rank {events.rank}: {full}; {events.num_dropped} calls dropped"

"""Reads the interposer's event files and converts them to a trace for ui.perfetto.dev and chrome://tracing.

python -m launch.trace.events mpi_events.*.bin -o trace.json.gz
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro

from common import command_line
from common.errors import UserError
from common.tracing import chrome

MAGIC = b"tandem mpi events 1\n"
# struct event of interposer/events.c.
CALL = np.dtype("i8, i8, i8, u2, u2, u4")
CALL.names = ("start_nanoseconds", "duration_nanoseconds", "size_bytes", "routine", "kind", "thread")
KINDS = ("other", "payload", "control", "completion", "io")


class Events(NamedTuple):
    """One rank's calls (CALL) in the order of their start, in nanoseconds since the epoch on rank 0's clock, within the error.

    The error is None where the ranks' clocks were not compared; the times are those of the machine's own clock in that case.
    """

    rank: int
    host: str
    num_dropped: int
    clock_error_nanoseconds: int | None
    # Names of the routines, by the index in `routine`.
    names: tuple[str, ...]
    calls: np.recarray


def read(path: str | Path) -> Events:
    """Reads a file of events. Raises UserError where it is not an event file or is truncated."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            if file.readline() != MAGIC:
                raise UserError(f"{path} is not a file of MPI events; give files mpi_events.JOB.RANK.bin")
            return _events(json.loads(file.readline()), file.read(), path)
    except OSError as problem:
        raise UserError(f"{path}: {problem.strerror}; give files mpi_events.JOB.RANK.bin") from None
    except ValueError:
        raise UserError(f"{path} has a truncated or damaged header; copy it again") from None
    except (LookupError, TypeError, ArithmeticError, AttributeError) as problem:
        raise UserError(f"{path} has a wrong or missing header entry ({problem}); copy it again") from None


def _events(header: dict[str, Any], content: bytes, path: Path) -> Events:
    """Makes the Events out of a file's header and the bytes after it."""
    if len(content) != header["num_events"] * CALL.itemsize:
        raise UserError(f"{path} is truncated after {len(content) // CALL.itemsize} of {header['num_events']} events; copy it again")
    calls = np.frombuffer(content, CALL)
    # A start of 0 marks a call that was being written when the process ended.
    calls = np.sort(calls[calls["start_nanoseconds"] != 0], order="start_nanoseconds", kind="stable").view(np.recarray)
    calls.start_nanoseconds += header["epoch_nanoseconds"] - header["monotonic_nanoseconds"] + header["offset_nanoseconds"]
    names = tuple(header["routines"])
    if len(calls) and (calls.routine.max() >= len(names) or calls.kind.max() >= len(KINDS)):
        raise UserError(f"{path} is damaged: its events have unknown routines or kinds; copy it again")
    is_compared = header["offset_error_nanoseconds"] >= 0
    error = header["pairing_error_nanoseconds"] + header["offset_error_nanoseconds"] if is_compared else None
    return Events(header["rank"], header["host"], header["num_dropped"], error, names, calls)


def calls_of(events: Events, zero_nanoseconds: int) -> Iterator[chrome.Event]:
    """Yields one rank's calls as dicts of Chrome's trace event format: a process for the rank, a track for each thread that calls MPI.

    `ts` and `dur` are in microseconds (Trace Event Format, Google, 2016), `ts` since a moment that is given in nanoseconds since
    1970: readers keep times in doubles, which hold the microseconds since 1970 to a quarter of one only.
    """
    yield {"ph": "M", "name": "process_name", "pid": events.rank, "args": {"name": f"rank {events.rank} ({events.host})"}}
    for thread in np.unique(events.calls.thread).tolist():
        yield {"ph": "M", "name": "thread_name", "pid": events.rank, "tid": thread, "args": {"name": f"MPI, thread {thread}"}}
    for start, duration, size_bytes, routine, kind, thread in events.calls.tolist():
        yield {
            "ph": "X", "name": events.names[routine], "cat": KINDS[kind], "pid": events.rank, "tid": thread,
            "ts": (start - zero_nanoseconds) / 1000, "dur": duration / 1000, "args": {"bytes": size_bytes},
        }  # fmt: skip


def summary(events: Events) -> str:
    """Describes a rank's file in one line: number of calls, number of dropped calls, clock error."""
    dropped = f", {events.num_dropped} dropped" if events.num_dropped else ""
    error = events.clock_error_nanoseconds
    clock = "clock not compared with rank 0's" if error is None else f"clock within {error / 1000:.1f} us of rank 0's"
    return f"rank {events.rank}: {len(events.calls)} calls{dropped}, {clock}"


def problems_of(events: Events) -> Iterator[str]:
    """Yields a message if calls were dropped from one rank's file."""
    if events.num_dropped:
        calls = events.calls
        ends = calls.start_nanoseconds + calls.duration_nanoseconds
        seconds = (ends.max() - calls.start_nanoseconds[0]) / 1e9 if len(calls) else 0.0
        full = f"the buffer of MPI events was full {seconds:.1f} s after the first call"
        yield f"rank {events.rank}: {full}; {events.num_dropped} calls dropped"


@dataclass(frozen=True)
class Arguments:
    """What to convert, into which file."""

    files: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """mpi_events.JOB.RANK.bin of one run."""
    output: Annotated[Path, tyro.conf.arg(aliases=("-o",))]
    """The trace, .json or .json.gz."""


def run(arguments: Arguments) -> int:
    """Converts the files into one trace, with the time of `ts` 0 in `otherData`; prints a line for each rank; returns the exit status."""
    if not arguments.files:
        raise UserError("no file is given; give mpi_events.JOB.RANK.bin of one run")
    ranks = sorted((read(path) for path in arguments.files), key=lambda events: events.rank)
    zero_nanoseconds = min((int(events.calls.start_nanoseconds[0]) for events in ranks if len(events.calls)), default=0)
    about = {"epoch_nanoseconds_of_ts_0": zero_nanoseconds, "ranks": [summary(events) for events in ranks]}
    try:
        chrome.write(arguments.output, (call for events in ranks for call in calls_of(events, zero_nanoseconds)), otherData=about)
    except OSError as problem:
        raise UserError(f"{arguments.output} cannot be written ({problem.strerror}); name another file with -o") from None
    with contextlib.suppress(BrokenPipeError):
        print(*about["ranks"], sep="\n")
    return 0


if __name__ == "__main__":
    command_line.main(run, Arguments, "python -m launch.trace.events", "Converts the interposer's event files to a trace.")

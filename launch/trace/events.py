"""Reads the interposer's event files and converts them to a trace for ui.perfetto.dev and chrome://tracing.

python -m launch.trace.events mpi_events.*.bin -o trace.json.gz
"""

import contextlib
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import tyro

from common import command_line, durable
from common.errors import UserError

MAGIC = b"tandem mpi events 1\n"
# struct event of interposer/events.c.
EVENT = np.dtype([("start", "=i8"), ("duration", "=i8"), ("bytes", "=i8"), ("routine", "=u2"), ("kind", "=u2"), ("thread", "=u4")])
KINDS = ("other", "payload", "control", "completion", "io")


class Events(NamedTuple):
    """One rank's calls, in the order of their start. `start_nanoseconds` are since the epoch, on rank 0's clock within the error.

    The error is None where the ranks' clocks were not compared; then the times are those of the machine's own clock.
    """

    rank: int
    num_ranks: int
    pid: int
    host: str
    num_dropped: int
    clock_error_nanoseconds: int | None
    # Names of the routines, by the index in `routine`.
    names: tuple[str, ...]
    start_nanoseconds: np.ndarray
    duration_nanoseconds: np.ndarray
    size_bytes: np.ndarray
    routine: np.ndarray
    kind: np.ndarray
    thread: np.ndarray


def read(path):
    """The Events in a file. Raises UserError where it is not an event file or is truncated."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            if file.readline() != MAGIC:
                raise UserError(f"{path} is not a file of MPI events; give files mpi_events.JOB.RANK.bin")
            header = json.loads(file.readline())
            records = np.frombuffer(file.read(), dtype=np.uint8)
    except OSError as problem:
        raise UserError(f"{path}: {problem.strerror}; give files mpi_events.JOB.RANK.bin") from None
    except ValueError:
        raise UserError(f"{path} has a truncated or damaged header; copy it again") from None
    try:
        return _events(header, records, path)
    except (KeyError, TypeError) as problem:
        raise UserError(f"{path} has a wrong or missing header entry ({problem}); copy it again") from None


def _events(header, records, path):
    """The Events of a file's header and of the bytes after it."""
    if len(records) != header["num_events"] * EVENT.itemsize:
        raise UserError(f"{path} is truncated after {len(records) // EVENT.itemsize} of {header['num_events']} events; copy it again")
    records = records.view(EVENT)
    # A start of 0 marks a record that was being written when the process ended.
    records = np.sort(records[records["start"] != 0], order="start", kind="stable")
    names = tuple(header["routines"])
    if len(records) and (records["routine"].max() >= len(names) or records["kind"].max() >= len(KINDS)):
        raise UserError(f"{path} is damaged: its events have unknown routines or kinds; copy it again")
    to_epoch = header["epoch_nanoseconds"] - header["monotonic_nanoseconds"] + header["offset_nanoseconds"]
    compared = header["offset_error_nanoseconds"] >= 0
    return Events(
        header["rank"], header["num_ranks"], header["pid"], header["host"], header["num_dropped"],
        header["pairing_error_nanoseconds"] + header["offset_error_nanoseconds"] if compared else None, names,
        records["start"] + to_epoch, records["duration"], records["bytes"], records["routine"], records["kind"], records["thread"],
    )  # fmt: skip


def chrome(events, zero_nanoseconds):
    """One rank's calls as dicts of Chrome's trace event format: a process for the rank, a track for each thread that calls MPI.

    `ts` and `dur` are in microseconds (Trace Event Format, Google, 2016), `ts` since a moment that is given in nanoseconds since
    1970: readers keep times in doubles, which hold the microseconds since 1970 to a quarter of one only.
    """
    yield {"ph": "M", "name": "process_name", "pid": events.rank, "args": {"name": f"rank {events.rank} ({events.host})"}}
    for thread in np.unique(events.thread).tolist():
        yield {"ph": "M", "name": "thread_name", "pid": events.rank, "tid": thread, "args": {"name": f"MPI, thread {thread}"}}
    columns = (events.start_nanoseconds, events.duration_nanoseconds, events.size_bytes, events.routine, events.kind, events.thread)
    for start, duration, size_bytes, routine, kind, thread in zip(*(column.tolist() for column in columns), strict=True):
        yield {
            "ph": "X", "name": events.names[routine], "cat": KINDS[kind], "pid": events.rank, "tid": thread,
            "ts": (start - zero_nanoseconds) / 1000, "dur": duration / 1000, "args": {"bytes": size_bytes},
        }  # fmt: skip


def summary(events):
    """One rank's file in a line: number of calls, number of dropped calls, clock error."""
    dropped = f", {events.num_dropped} dropped" if events.num_dropped else ""
    error = events.clock_error_nanoseconds
    clock = "clock not compared with rank 0's" if error is None else f"clock within {error / 1000:.1f} us of rank 0's"
    return f"rank {events.rank}: {len(events.start_nanoseconds)} calls{dropped}, {clock}"


def describe_dropped(events):
    """A message about the calls that were dropped from one rank's file; None where it has all."""
    if not events.num_dropped:
        return None
    ends = events.start_nanoseconds + events.duration_nanoseconds
    seconds = (ends.max() - events.start_nanoseconds[0]) / 1e9 if len(ends) else 0.0
    return f"rank {events.rank}: the buffer of MPI events was full {seconds:.1f} s after the first call; {events.num_dropped} calls dropped"


def write_chrome(ranks, path):
    """Writes the Events of several ranks as one trace, compressed where the path ends in .gz; its `otherData` says when `ts` 0 is.

    Raises UserError where it cannot be written.
    """
    path = Path(path)
    try:
        with durable.replacing(path) as part:
            _write_chrome(ranks, part, path.suffix == ".gz")
    except OSError as problem:
        raise UserError(f"{path} cannot be written ({problem.strerror}); name another file with -o") from None


def _write_chrome(ranks, part, compressed):
    zero_nanoseconds = min((int(events.start_nanoseconds[0]) for events in ranks if len(events.start_nanoseconds)), default=0)
    metadata = {"epoch_nanoseconds_of_ts_0": zero_nanoseconds, "ranks": [summary(events) for events in ranks]}
    with gzip.open(part, "wt") if compressed else part.open("w") as file:
        file.write(f'{{"otherData": {json.dumps(metadata)}, "displayTimeUnit": "ms", "traceEvents": [')
        separator = "\n"
        for events in ranks:
            for event in chrome(events, zero_nanoseconds):
                file.write(separator + json.dumps(event))
                separator = ",\n"
        file.write("\n]}\n")


@dataclass(frozen=True)
class Arguments:
    """What to convert, into which file."""

    files: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """mpi_events.JOB.RANK.bin of one run."""
    output: Annotated[Path, tyro.conf.arg(aliases=("-o",))]
    """The trace, .json or .json.gz."""


def run(arguments):
    """Converts the files, prints a line for each rank and returns the exit status."""
    if not arguments.files:
        raise UserError("no file is given; give mpi_events.JOB.RANK.bin of one run")
    ranks = sorted((read(path) for path in arguments.files), key=lambda events: events.rank)
    write_chrome(ranks, arguments.output)
    with contextlib.suppress(BrokenPipeError):
        print(*(summary(events) for events in ranks), sep="\n")
    return 0


if __name__ == "__main__":
    command_line.main(run, Arguments, "python -m launch.trace.events", __doc__.splitlines()[0])

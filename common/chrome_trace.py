"""Chrome's trace format, for chrome://tracing and ui.perfetto.dev: streaming reader and writer.

Google's "Trace Event Format": an array of events, or an object with the array as `traceEvents`; `ts` and `dur` are in microseconds.
"""

import contextlib
import gzip
import itertools
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import ijson

from common import durable
from common.errors import UserError, printable

CHUNK_BYTES = 1 << 20
# Of brackets that a chunk opens and does not close: ijson takes time with the square of the depth.
MAX_OPENED = 10_000
GZIP_MAGIC = b"\x1f\x8b"
# Fast, at the cost of about a tenth in size.
COMPRESSION_LEVEL = 3
# An event, as JSON.
Event = dict[str, Any]
# Gets a line about what is wrong with a file.
Report = Callable[[str], None]


def events(path: str | Path, on_cut: Report | None = None) -> Iterator[Event]:
    """Yields the events of a trace file, gzipped or not, as dicts; memory use does not depend on the file's size.

    A truncated or damaged file yields its complete events; then `on_cut` is called with a one-line message. Old versions of
    Horovod never close the array. Raises UserError for a file that is not a trace.
    """
    chunks = _chunks(path)
    first = next(chunks, b"")
    start = first.lstrip()[:1]
    if start not in (b"[", b"{"):
        raise UserError(f"{path} is not a trace: it should begin with [ or {{, and {'begins with ' + repr(start) if start else 'is empty'}")
    try:
        content, num_events = ijson.from_iter(itertools.chain([first], chunks)), 0
        for event in ijson.items(content, "item" if start == b"[" else "traceEvents.item", use_float=True):
            if not isinstance(event, dict):
                raise UserError(f"{path} is not a trace: an event is not an object but {type(event).__name__}")
            yield event
            num_events += 1
    except ijson.JSONError as problem:
        if on_cut:
            text = problem.args[0].decode(errors="replace") if isinstance(problem.args[0], bytes) else str(problem)
            reason = printable(text.splitlines()[0]).rstrip(".")
            on_cut(f"{path} is truncated or damaged and was read up to there, event {num_events}: {reason}")


def value(path: str | Path, name: str, default: object = None) -> Any:
    """Reads a top-level value of a trace file that is an object, such as its metadata; `default` where there is none."""
    try:
        return next(ijson.items(ijson.from_iter(_chunks(path)), name, use_float=True), default)
    except ijson.JSONError:
        return default


def _chunks(path: str | Path) -> Iterator[bytes]:
    """Yields the bytes of a file, uncompressed; a truncated gzip file yields those that are left."""
    try:
        durable.expect_regular(Path(path))
        with open(path, "rb") as raw:
            zipped = raw.read(2) == GZIP_MAGIC
            raw.seek(0)
            stream = gzip.GzipFile(fileobj=raw) if zipped else raw
            with contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile):
                while chunk := stream.read1(CHUNK_BYTES):
                    if sum(map(chunk.count, b"[{")) - sum(map(chunk.count, b"]}")) > MAX_OPENED:
                        raise UserError(f"{path} is not a trace: nested too deeply")
                    yield chunk
    except OSError as problem:
        raise UserError(f"cannot read the trace {path}: {problem.strerror}") from None


def write(path: str | Path, trace_events: Iterable[Event], metadata: dict[str, Any] | Callable[[], dict[str, Any]]) -> int:
    """Writes a trace event by event, with its metadata, which may be a function to call after the last event. The write is atomic.

    The file is gzipped where the path ends in .gz. Returns the number of events.
    """
    dump = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
    path, num_events = Path(path), 0
    with (
        durable.replacing(path) as temporary,
        gzip.open(temporary, "wt", COMPRESSION_LEVEL) if path.suffix == ".gz" else temporary.open("w") as file,
    ):
        file.write('{"displayTimeUnit":"ms",')
        file.write('"traceEvents":[\n' if callable(metadata) else f'"metadata":{dump(metadata)},"traceEvents":[\n')
        for event in trace_events:
            file.write(f",\n{dump(event)}" if num_events else dump(event))
            num_events += 1
        file.write(f'\n],"metadata":{dump(metadata())}}}\n' if callable(metadata) else "\n]}\n")
    return num_events

"""Chrome's trace format, for chrome://tracing and ui.perfetto.dev: streaming reader, writer and check.

Google's "Trace Event Format": an array of events, or an object with the array as `traceEvents`; `ts` and `dur` are in microseconds.
"""

import contextlib
import gzip
import itertools
import json
import math
import reprlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeGuard

import ijson

from common import durable
from common.errors import UserError, printable

CHUNK_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
# Fast, at the cost of about a tenth in size.
COMPRESSION_LEVEL = 3
MAX_PROBLEMS = 20
# An event, as JSON; ENTRIES has what its entries must be.
Event = dict[str, Any]
# Gets a line about what is wrong with a file.
Report = Callable[[str], None]


def is_number(value: object) -> TypeGuard[int | float]:
    """Returns whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# What the entries of an event must be, where they are there.
ENTRIES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "name": ("a text", lambda value: isinstance(value, str)),
    "cat": ("a text", lambda value: isinstance(value, str)),
    "pid": ("a number or a text", lambda value: isinstance(value, int | str)),
    "tid": ("a number or a text", lambda value: isinstance(value, int | str)),
    "ts": ("a time", is_number),
    "dur": ("a duration from 0", lambda value: is_number(value) and value >= 0),
    "args": ("an object", lambda value: isinstance(value, dict)),
}


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


def problem_of(event: Event, needed: Iterable[str]) -> str | None:
    """Describes what is wrong with an event, which must have the `needed` entries; None where nothing is."""
    if missing := [name for name in needed if event.get(name) is None]:
        return f"has no {', no '.join(missing)}"
    for name, (words, holds) in ENTRIES.items():
        if event.get(name) is not None and not holds(event[name]):
            return f"has the {name} {reprlib.repr(event[name])}, which is not {words}"
    return None


def valid(
    trace_events: Iterable[Event],
    problem_of_event: Callable[[Event], str | None],
    window: tuple[float, float],
    report: Report | None = None,
) -> Iterator[Event]:
    """Yields the events without a problem that lie in a window of microseconds.

    At the end `report` gets one line about those that were left out for their entries, and one about those left out for their time.
    """
    report, left_out = report or (lambda text: None), {}
    for event in trace_events:
        kind, problem = "entries", problem_of_event(event)
        if problem is None and (ts := event.get("ts")) is not None:
            kind, outside = "time", max(window[0] - ts, ts + event.get("dur", 0.0) - window[1])
            problem = f"lies {outside / 1e6:,.0f} s outside the time of the run" if outside > 0 else None
        if problem is None:
            yield event
        else:
            num_before, first = left_out.get(kind, (0, f"{reprlib.repr(event.get('name'))} {problem}"))
            left_out[kind] = num_before + 1, first
    for num_events, first in left_out.values():
        report(printable(f"{num_events} event{' is' if num_events == 1 else 's are'} left out; the first, {first}"))


def naming(path: str | Path, report: Report | None) -> Report | None:
    """Returns a function that reports a line with the file's path before it."""
    return report and (lambda text: report(f"{path}: {text}"))


def value(path: str | Path, name: str, default: object = None) -> object:
    """Reads a top-level value of a trace file that is an object, such as its metadata; `default` where there is none."""
    try:
        return next(ijson.items(ijson.from_iter(_chunks(path)), name, use_float=True), default)
    except ijson.JSONError:
        return default


def _chunks(path: str | Path) -> Iterator[bytes]:
    """Yields the bytes of a file, uncompressed; a truncated gzip file yields those that are left."""
    try:
        with open(path, "rb") as raw:
            zipped = raw.read(2) == GZIP_MAGIC
            raw.seek(0)
            stream = gzip.GzipFile(fileobj=raw) if zipped else raw
            with contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile):
                while chunk := stream.read1(CHUNK_BYTES):
                    yield chunk
    except OSError as problem:
        raise UserError(f"cannot read the trace {path}: {problem.strerror}") from None


def write(path: str | Path, trace_events: Iterable[Event], **head: object) -> int:
    """Writes a trace event by event, after the top-level values of `head`; gzipped where the path ends in .gz. The write is atomic.

    Returns the number of events.
    """
    dump = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
    path, count = Path(path), 0
    with durable.replacing(path) as part, gzip.open(part, "wt", COMPRESSION_LEVEL) if path.suffix == ".gz" else part.open("w") as file:
        file.write(dump({"displayTimeUnit": "ms"} | head).removesuffix("}") + ',"traceEvents":[\n')
        for event in trace_events:
            file.write(f",\n{dump(event)}" if count else dump(event))
            count += 1
        file.write("\n]}\n")
    return count


def check(trace_events: Iterable[Event]) -> list[str]:
    """Checks that each event has ph, ts, pid and tid, that B and E pair up on each track, and that no duration is negative.

    Metadata events (M) need neither ts nor tid, counters (C) no tid. Reads all events; returns the messages of the first problems.
    """
    first_problems = []
    for problem in _problems(trace_events):
        if len(first_problems) < MAX_PROBLEMS:
            first_problems.append(problem)
    return first_problems


def _problems(trace_events: Iterable[Event]) -> Iterator[str]:
    open_since = {}
    for number, event in enumerate(trace_events):
        phase = event.get("ph") or ""
        needed = {"M": ("pid",), "C": ("pid", "ts")}.get(phase, ("pid", "tid", "ts"))
        missing = [name for name in ("ph", *needed) if event.get(name) is None]
        if missing:
            yield f"event {number} has no {', no '.join(missing)}"
            continue
        if "ts" in needed and not _is_time(event["ts"]):
            yield f"event {number}, {event.get('name')}: ts is {event['ts']!r}, not a time from 0"
            continue
        if phase == "X" and not _is_time(event.get("dur")):
            yield f"event {number}, {event.get('name')}: dur is {event.get('dur')!r}, not a duration from 0"
        if phase in ("B", "E"):
            stack = open_since.setdefault((event["pid"], event["tid"]), [])
            if phase == "B":
                stack.append(event["ts"])
            elif not stack:
                yield f"event {number} on track {event['pid']}/{event['tid']} ends a span that was not begun"
            elif event["ts"] < stack.pop():
                yield f"event {number} on track {event['pid']}/{event['tid']} ends before it begins"
    for (pid, tid), stack in open_since.items():
        if stack:
            yield f"{len(stack)} spans on track {pid}/{tid} are not ended"


def _is_time(number: object) -> bool:
    return is_number(number) and number >= 0

"""Chrome's trace format, for chrome://tracing and ui.perfetto.dev: streaming reader, writer and check.

Google's "Trace Event Format": an array of events, or an object with the array as `traceEvents`; `ts` and `dur` are in microseconds.
"""

import gzip
import itertools
import json
import zlib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import ijson

from common import durable
from common.errors import UserError

CHUNK_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
# Fast, at the cost of about a tenth in size.
COMPRESSION_LEVEL = 3
MAX_PROBLEMS = 20


def events(path, on_cut=None):
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
        whole = ijson.from_iter(itertools.chain([first], chunks))
        for event in ijson.items(whole, "item" if start == b"[" else "traceEvents.item", use_float=True):
            if not isinstance(event, dict):
                raise UserError(f"{path} is not a trace: an event is not an object but {type(event).__name__}")
            yield event
    except ijson.JSONError as problem:
        if on_cut:
            on_cut(f"{path} is truncated or damaged and was read up to there: {str(problem).splitlines()[0]}")


def value(path, name, default=None):
    """Returns a top-level value of a trace file that is an object, such as its metadata; `default` where there is none."""
    try:
        return next(ijson.items(ijson.from_iter(_chunks(path)), name, use_float=True), default)
    except ijson.JSONError:
        return default


def _chunks(path):
    """Yields the bytes of a file, uncompressed; of a truncated gzip file those that are left."""
    try:
        with open(path, "rb") as raw:
            zipped = raw.read(2) == GZIP_MAGIC
            raw.seek(0)
            stream = gzip.GzipFile(fileobj=raw) if zipped else raw
            try:
                while chunk := stream.read1(CHUNK_BYTES) if zipped else stream.read(CHUNK_BYTES):
                    yield chunk
            except (EOFError, zlib.error, gzip.BadGzipFile):
                return
    except OSError as problem:
        raise UserError(f"cannot read the trace {path}: {problem.strerror}") from None


def write(path, trace_events, metadata):
    """Writes a trace as gzipped JSON, event by event, after `metadata`, a dict. The write is atomic. Returns the number of events."""
    dump = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
    count = 0
    with durable.replacing(Path(path)) as part, gzip.open(part, "wt", COMPRESSION_LEVEL, encoding="utf-8") as file:
        file.write(f'{{"displayTimeUnit":"ms","metadata":{dump(metadata)},"traceEvents":[\n')
        for event in trace_events:
            file.write(f",\n{dump(event)}" if count else dump(event))
            count += 1
        file.write("\n]}\n")
    return count


class Checked(NamedTuple):
    """The result of a check: the number of events by phase, the number of problems, and messages for the first of them."""

    num_events: dict[str, int]
    num_problems: int
    problems: list[str]


def check(trace_events):
    """Checks that each event has ph, ts, pid and tid, that B and E pair up on each track, and that no duration is negative.

    Metadata events (M) need neither ts nor tid, counters (C) no tid. Returns Checked.
    """
    num_events, problems = Counter(), []
    open_since = {}
    num_problems = 0

    def report(problem):
        nonlocal num_problems
        num_problems += 1
        if len(problems) < MAX_PROBLEMS:
            problems.append(problem)

    for number, event in enumerate(trace_events):
        phase = event.get("ph")
        num_events[phase] += 1
        needed = {"M": ("pid",), "C": ("pid", "ts")}.get(phase, ("pid", "tid", "ts"))
        missing = [name for name in ("ph", *needed) if event.get(name) is None]
        if missing:
            report(f"event {number} has no {', no '.join(missing)}")
            continue
        if "ts" in needed and not _is_time(event["ts"]):
            report(f"event {number}, {event.get('name')}: ts is {event['ts']!r}, not a time from 0")
            continue
        if phase == "X" and not _is_time(event.get("dur")):
            report(f"event {number}, {event.get('name')}: dur is {event.get('dur')!r}, not a duration from 0")
        if phase in "BE":
            stack = open_since.setdefault((event["pid"], event["tid"]), [])
            if phase == "B":
                stack.append(event["ts"])
            elif not stack:
                report(f"event {number} on track {event['pid']}/{event['tid']} ends a span that was not begun")
            elif event["ts"] < stack.pop():
                report(f"event {number} on track {event['pid']}/{event['tid']} ends before it begins")
    for (pid, tid), stack in open_since.items():
        if stack:
            report(f"{len(stack)} spans on track {pid}/{tid} are not ended")
    return Checked(dict(num_events), num_problems, problems)


def _is_time(number):
    return isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number < float("inf")


def to_complete_events(trace_events):
    """Yields the events with each pair of B (begin) and E (end) as one X (complete) event.

    An E without its B is dropped; a B without its E ends with the last event of the file and has `unfinished` in its args.
    """
    open_on, last = {}, 0
    for event in trace_events:
        phase = event.get("ph")
        last = max(last, event.get("ts", 0) + event.get("dur", 0))
        if phase not in ("B", "E"):
            yield event
            continue
        stack = open_on.setdefault((event["pid"], event.get("tid")), [])
        if phase == "B":
            stack.append(event)
        elif stack:
            begun = stack.pop()
            yield _complete(begun, event["ts"], begun.get("args", {}) | event.get("args", {}))
    for stack in open_on.values():
        for begun in reversed(stack):
            yield _complete(begun, last, begun.get("args", {}) | {"unfinished": True})


def _complete(begun, end, args):
    return begun | {"ph": "X", "dur": max(end - begun["ts"], 0)} | ({"args": args} if args else {})

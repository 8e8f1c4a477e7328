"""Chrome's trace format, which chrome://tracing and ui.perfetto.dev open: read, checked and written as streams.

The format is Google's "Trace Event Format": an array of events, or an object that has it as `traceEvents`; `ts` and
`dur` are in microseconds.
"""

import gzip
import itertools
import json
import os
import zlib
from collections import Counter
from typing import NamedTuple

import ijson

from common.errors import UserError

CHUNK_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
# Speed counts more than the last tenth of the size.
COMPRESSION_LEVEL = 3
NUM_TOLD = 20


def events(path, on_cut=None):
    """Yields the events of a trace file, gzipped or not, as dicts; memory stays bounded whatever the file's size.

    A file whose end is missing, or not JSON, yields what is whole before that; then `on_cut` is called with one line
    that says so. Older Horovods never closed the array. Raises UserError for a file that is no trace at all.
    """
    chunks = _chunks(path)
    first = next(chunks, b"")
    start = first.lstrip()[:1]
    if start not in (b"[", b"{"):
        raise UserError(f"{path} is no trace: it should begin with [ or {{, and {'begins with ' + repr(start) if start else 'is empty'}")
    try:
        whole = ijson.from_iter(itertools.chain([first], chunks))
        for event in ijson.items(whole, "item" if start == b"[" else "traceEvents.item", use_float=True):
            if not isinstance(event, dict):
                raise UserError(f"{path} is no trace: one of its events is no object but {type(event).__name__}")
            yield event
    except ijson.JSONError as problem:
        if on_cut:
            on_cut(f"{path} was read up to where it is cut off or damaged: {str(problem).splitlines()[0]}")


def value(path, name, otherwise=None):
    """A value at the top of a trace file that is an object, such as its metadata; `otherwise` where there is none."""
    try:
        return next(ijson.items(ijson.from_iter(_chunks(path)), name, use_float=True), otherwise)
    except ijson.JSONError:
        return otherwise


def _chunks(path):
    """The bytes of a file, uncompressed. A gzip file that is cut off ends where what is left of it ends."""
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
    """Writes a trace as gzipped JSON, event by event, with `metadata`, a dict, before them.

    The file is there, whole, or not at all. Returns how many events it has.
    """
    dump = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
    temporary = f"{path}.{os.getpid()}.tmp"
    count = 0
    try:
        with gzip.open(temporary, "wt", COMPRESSION_LEVEL, encoding="utf-8") as file:
            file.write(f'{{"displayTimeUnit":"ms","metadata":{dump(metadata)},"traceEvents":[\n')
            for event in trace_events:
                file.write(f",\n{dump(event)}" if count else dump(event))
                count += 1
            file.write("\n]}\n")
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    return count


class Checked(NamedTuple):
    """What a check of a trace found: how many events of each phase, and problems, the first of them in words."""

    num_events: dict[str, int]
    num_problems: int
    problems: list[str]


def check(trace_events):
    """Checks that each event has ph, ts, pid and tid, that B and E pair up on each track, and that no time runs backwards.

    Metadata (M) needs no time and no track; a counter (C) no track. Returns Checked.
    """
    num_events, problems = Counter(), []
    open_since = {}
    num_problems = 0

    def tell(problem):
        nonlocal num_problems
        num_problems += 1
        if len(problems) < NUM_TOLD:
            problems.append(problem)

    for number, event in enumerate(trace_events):
        phase = event.get("ph")
        num_events[phase] += 1
        needed = {"M": ("pid",), "C": ("pid", "ts")}.get(phase, ("pid", "tid", "ts"))
        missing = [name for name in ("ph", *needed) if event.get(name) is None]
        if missing:
            tell(f"event {number} has no {', no '.join(missing)}")
            continue
        if "ts" in needed and not _is_time(event["ts"]):
            tell(f"event {number}, {event.get('name')}: ts is {event['ts']!r}, which is no time from 0")
            continue
        if phase == "X" and not _is_time(event.get("dur")):
            tell(f"event {number}, {event.get('name')}: dur is {event.get('dur')!r}, which is no duration from 0")
        if phase in "BE":
            stack = open_since.setdefault((event["pid"], event["tid"]), [])
            if phase == "B":
                stack.append(event["ts"])
            elif not stack:
                tell(f"event {number} ends on track {event['pid']}/{event['tid']} what was not begun")
            elif event["ts"] < stack.pop():
                tell(f"event {number} on track {event['pid']}/{event['tid']} ends before its beginning")
    for (pid, tid), stack in open_since.items():
        if stack:
            tell(f"{len(stack)} on track {pid}/{tid} begun and not ended")
    return Checked(dict(num_events), num_problems, problems)


def _is_time(number):
    return isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number < float("inf")


def completed(trace_events):
    """Yields the events with each pair of B and E made one X, so that pairs cannot be torn apart.

    An E without its B is left out; a B without its E ends with the last event of the file, and its args say `unfinished`.
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
            yield _whole(begun, event["ts"], begun.get("args", {}) | event.get("args", {}))
    for stack in open_on.values():
        for begun in reversed(stack):
            yield _whole(begun, last, begun.get("args", {}) | {"unfinished": True})


def _whole(begun, end, args):
    return begun | {"ph": "X", "dur": max(end - begun["ts"], 0)} | ({"args": args} if args else {})

"""Traces in Chrome's format: reading, also truncated files, checking, and writing."""

import gzip
import json

import pytest

from common.errors import UserError
from common.tracing import chrome

BEGIN = {"ph": "B", "name": "a", "ts": 1, "pid": 1, "tid": 1}
END = {"ph": "E", "ts": 3, "pid": 1, "tid": 1}
SPAN = {"ph": "X", "name": "b", "ts": 2, "dur": 0.5, "pid": 1, "tid": 1}
THREE = [BEGIN, SPAN, END]
LINES = ",\n".join(json.dumps(event) for event in THREE)


def read(path):
    """Returns (events, messages about damage) of a file."""
    messages = []
    return list(chrome.events(path, messages.append)), messages


@pytest.mark.parametrize(
    ("text", "num_whole", "cut"),
    [
        (f"[{LINES}]", 3, False),
        (f"  [\n{LINES}\n]\n", 3, False),
        (f'{{"baseTimeNanoseconds": 5, "traceEvents": [{LINES}], "traceName": "x"}}', 3, False),
        (f"[\n{LINES}", 3, True),
        (f"[\n{LINES},\n", 3, True),
        (f"[\n{LINES}"[:-5], 2, True),
        (f'{{"traceEvents": [{LINES}'[:-5], 2, True),
        (f"[{LINES}\nSegmentation fault", 3, True),
        ("[", 0, True),
    ],
)
def test_all_complete_events_are_read(tmp_path, text, num_whole, cut):
    path = tmp_path / "trace"
    path.write_text(text)
    events, messages = read(path)
    assert events == THREE[:num_whole]
    assert [str(path) in line for line in messages] == [True] * cut


def test_a_truncated_gzip_file_is_read_up_to_there(tmp_path):
    many = [SPAN | {"name": f"{number * 7919 % 10007}"} for number in range(5000)]
    path = tmp_path / "trace.gz"
    path.write_bytes(gzip.compress(json.dumps(many).encode())[:-5000])
    events, messages = read(path)
    assert 0 < len(events) < 5000
    assert events == many[: len(events)]
    assert len(messages) == 1


@pytest.mark.parametrize(("content", "message"), [(b"", "is empty"), (b"<html>", "begins with b'<'"), (None, "No such file")])
def test_a_file_that_is_not_a_trace_is_an_error(tmp_path, content, message):
    path = tmp_path / "trace"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        list(chrome.events(path))


def test_a_value_at_the_top_is_found(tmp_path):
    path = tmp_path / "trace"
    path.write_text(f'{{"metadata": {{"host": "n1", "meetings": [[1, 2]]}}, "traceEvents": [{LINES}], "after": 7')
    assert chrome.value(path, "metadata.host") == "n1"
    assert chrome.value(path, "metadata.meetings") == [[1, 2]]
    assert chrome.value(path, "after") == 7
    assert chrome.value(path, "nowhere", 0) == 0


@pytest.mark.parametrize(
    ("events", "messages"),
    [
        (THREE, []),
        ([{"ph": "M", "name": "process_name", "pid": 1, "args": {}}, {"ph": "C", "name": "c", "ts": 0, "pid": 1}], []),
        ([{"ph": "B", "pid": 1, "tid": 2, "ts": 0}, END, BEGIN], ["track 1/1 ends a span", "1 spans on track 1/2", "1 spans on track 1/1"]),
        ([BEGIN | {"ts": 9}, END], ["before it begins"]),
        ([SPAN | {"dur": -1}], ["dur is -1"]),
        ([{key: value for key, value in SPAN.items() if key != "dur"}], ["dur is None"]),
        ([SPAN | {"ts": -1}], ["ts is -1"]),
        ([SPAN | {"ts": "1"}], ["ts is '1'"]),
        ([SPAN | {"ts": float("nan")}], ["ts is nan"]),
        ([{"name": "b", "ts": 1}], ["has no ph, no pid, no tid"]),
        ([{"ph": "i", "name": "CYCLE_START", "ts": 885, "s": "g"}], ["has no pid, no tid"]),
        ([{"ph": "M", "name": "process_name"}], ["has no pid"]),
    ],
)  # fmt: skip
def test_check_finds_each_problem(events, messages):
    problems = chrome.check(events)
    assert len(problems) == len(messages)
    assert all(message in problem for message, problem in zip(messages, problems, strict=True))


def test_check_reads_everything_and_reports_the_first_problems():
    events = iter([END] * 1000)
    assert len(chrome.check(events)) == chrome.MAX_PROBLEMS
    assert next(events, None) is None


@pytest.mark.parametrize(("name", "magic"), [("trace.json.gz", chrome.GZIP_MAGIC), ("trace.json", b"{")])
def test_what_is_written_is_read_again(tmp_path, name, magic):
    path = tmp_path / name
    assert chrome.write(path, iter(THREE), metadata={"host": "n1"}) == 3
    assert path.read_bytes().startswith(magic)
    assert read(path) == (THREE, [])
    assert chrome.value(path, "metadata") == {"host": "n1"}

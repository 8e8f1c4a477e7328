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
    """(events, messages about damage) of a file."""
    messages = []
    return list(chrome.events(path, messages.append)), messages


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("text", "num_whole", "cut"),
    [
        (f"[{LINES}]", 3, False),
        (f"  [\n{LINES}\n]\n", 3, False),
        (f'{{"baseTimeNanoseconds": 5, "traceEvents": [{LINES}], "traceName": "x"}}', 3, False),
        ("[]", 0, False),
        (f"[\n{LINES}", 3, True),
        (f"[\n{LINES},\n", 3, True),
        (f"[\n{LINES},]", 3, True),
        (f"[\n{LINES}"[:-5], 2, True),
        (f'{{"traceEvents": [{LINES}'[:-5], 2, True),
        (f"[{LINES}\nSegmentation fault", 3, True),
        ("[", 0, True),
    ],
)
def test_all_complete_events_are_read(tmp_path, zipped, text, num_whole, cut):
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    found, messages = read(path)
    assert found == THREE[:num_whole]
    assert [str(path) in line for line in messages] == [True] * cut


def test_a_truncated_gzip_file_is_read_up_to_there(tmp_path):
    many = [SPAN | {"name": f"{number * 7919 % 10007}"} for number in range(5000)]
    path = tmp_path / "trace.gz"
    path.write_bytes(gzip.compress(json.dumps(many).encode())[:-5000])
    found, messages = read(path)
    assert 0 < len(found) < 5000
    assert found == many[: len(found)]
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
    checked = chrome.check(events)
    assert checked.num_problems == len(messages)
    assert all(part in problem for part, problem in zip(messages, checked.problems, strict=True))
    assert sum(checked.num_events.values()) == len(events)


def test_check_reports_the_first_of_many_problems():
    checked = chrome.check([END] * 1000)
    assert checked.num_problems == 1000
    assert len(checked.problems) == chrome.MAX_PROBLEMS


@pytest.mark.parametrize(
    ("events", "spans"),
    [
        (THREE, [("b", 2, 0.5, None), ("a", 1, 2, None)]),
        ([BEGIN, BEGIN | {"name": "inner", "ts": 2}, END, END | {"ts": 9}], [("inner", 2, 1, None), ("a", 1, 8, None)]),
        ([END, SPAN], [("b", 2, 0.5, None)]),
        ([BEGIN, END | {"tid": 2}], [("a", 1, 2, {"unfinished": True})]),
        ([BEGIN, SPAN | {"ts": 7}], [("b", 7, 0.5, None), ("a", 1, 6.5, {"unfinished": True})]),
        ([BEGIN | {"args": {"n": 1}}, END | {"args": {"dtype": "x"}}], [("a", 1, 2, {"n": 1, "dtype": "x"})]),
        ([BEGIN, END | {"ts": 0}], [("a", 1, 0, None)]),
    ],
)
def test_begin_and_end_become_complete_events(events, spans):
    found = list(chrome.to_complete_events(events))
    assert [(event["name"], event["ts"], event["dur"], event.get("args")) for event in found] == spans
    assert chrome.check(found).num_problems == 0


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "trace.json.gz"
    assert chrome.write(path, iter(THREE), {"host": "n1"}) == 3
    assert read(path) == (THREE, [])
    assert json.loads(gzip.decompress(path.read_bytes()))["metadata"] == {"host": "n1"}


def test_a_failed_write_leaves_no_file(tmp_path):
    def broken():
        yield SPAN
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        chrome.write(tmp_path / "trace.json.gz", broken(), {})
    assert list(tmp_path.iterdir()) == []

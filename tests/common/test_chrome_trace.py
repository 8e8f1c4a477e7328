"""Traces in Chrome's format: reading, also truncated files, and writing."""

import gzip
import json
import os

import pytest

from common import chrome_trace
from common.errors import UserError

BEGIN = {"ph": "B", "name": "a", "ts": 1, "pid": 1, "tid": 1}
END = {"ph": "E", "ts": 3, "pid": 1, "tid": 1}
SPAN = {"ph": "X", "name": "b", "ts": 2, "dur": 0.5, "pid": 1, "tid": 1}
THREE = [BEGIN, SPAN, END]
LINES = ",\n".join(json.dumps(event) for event in THREE)
# In place of the content of a file: whoever opens it waits for a writer.
FIFO = object()


def read(path):
    """Returns (events, messages about damage) of a file."""
    messages = []
    return list(chrome_trace.events(path, messages.append)), messages


@pytest.mark.parametrize(
    ("text", "num_whole", "cut"),
    [
        (f"[{LINES}]", 3, False),
        (f"  [\n{LINES}\n]\n", 3, False),
        (f'{{"baseTimeNanoseconds": 5, "traceEvents": [{LINES}], "traceName": "x"}}', 3, False),
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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"<html>", "begins with b'<'"),
        (b'[{"a":' * 100_000, "nested too deeply"),
        (None, "No such file"),
        (FIFO, "not a regular file"),
    ],
)
def test_a_file_that_is_not_a_trace_is_an_error(tmp_path, content, message):
    path = tmp_path / "trace"
    if content == FIFO:
        os.mkfifo(path)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        list(chrome_trace.events(path))


def test_a_value_at_the_top_is_found(tmp_path):
    path = tmp_path / "trace"
    path.write_text(f'{{"metadata": {{"host": "n1", "meetings": [[1, 2]]}}, "traceEvents": [{LINES}], "after": 7')
    assert chrome_trace.value(path, "metadata.host") == "n1"
    assert chrome_trace.value(path, "metadata.meetings") == [[1, 2]]
    assert chrome_trace.value(path, "after") == 7
    assert chrome_trace.value(path, "nowhere", 0) == 0


@pytest.mark.parametrize(("name", "magic"), [("trace.json.gz", chrome_trace.GZIP_MAGIC), ("trace.json", b"{")])
@pytest.mark.parametrize("metadata", [{"host": "n1"}, lambda: {"host": "n1"}])
def test_what_is_written_is_read_again(tmp_path, name, magic, metadata):
    path = tmp_path / name
    assert chrome_trace.write(path, iter(THREE), metadata) == 3
    assert path.read_bytes().startswith(magic)
    assert read(path) == (THREE, [])
    assert chrome_trace.value(path, "metadata") == {"host": "n1"}

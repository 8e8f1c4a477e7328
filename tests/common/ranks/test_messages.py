"""The messages of ranks to a matrix: written and read again, and never mistaken for another line."""

import math

import pytest

from common.progress import Progress
from common.ranks import messages
from common.ranks.messages import Hang, Position, TurnEnded, format_line, mark_of, read_line, send

SECRET = "5ec2e1"
MARK = mark_of(SECRET)
MIDDLE = Progress(3, 16, 22, 44, 0.1234, 0.9694, 12.5)
MESSAGES = [
    MIDDLE,
    Progress(1, 16, 0, 44, None, None, 0.0),
    Progress(16, 16, 44, 44, math.inf, 1.0, 1234.5),
    Hang(3, Position(), 120.0),
    Hang(0, Position(1, 23, 22), 9.0),
    TurnEnded([4194304, 1]),
]


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("launcher", ["", "[1] "])
def test_a_message_is_read_as_it_was_written_also_behind_what_a_launcher_writes(launcher, message):
    read = read_line(launcher + format_line(message, SECRET), SECRET)
    assert (type(read), read) == (type(message), message)


def test_a_run_that_diverges_still_has_its_progress():
    assert math.isnan(read_line(format_line(MIDDLE._replace(loss=math.nan), SECRET), SECRET).loss)


LINES = [
    "",
    MARK,
    f"{MARK} half way",
    format_line(MIDDLE, SECRET)[:-1],
    format_line(MIDDLE, SECRET).removeprefix(MARK),
    format_line(MIDDLE, ""),
]


@pytest.mark.parametrize("line", LINES)
def test_any_other_line_is_no_message(line):
    assert read_line(line, SECRET) is None


def test_a_message_is_printed_only_where_a_program_reads_it(monkeypatch, capsys):
    monkeypatch.setattr(messages, "SECRET", None)
    send(MIDDLE)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(messages, "SECRET", SECRET)
    send(MIDDLE)
    assert capsys.readouterr().out == f"\n{format_line(MIDDLE, SECRET)}\n"

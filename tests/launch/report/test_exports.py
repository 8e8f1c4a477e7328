"""The exports of the answer: every number, in valid Markdown, SVG and terminal output."""

import io
import platform
import re
import sys

import pytest
from rich.console import Console

from launch.report.export import drawing, markdown, readme, screen
from launch.report.report import report_of
from tests.support.answers import answered
from tests.support.made_records import ended, made, repeats, step_breakdown
from tests.support.mistakes import refused
from tests.support.running import BIN, completed

RECORDS = [
    *repeats([9.0, 9.5, 10.0]),
    *repeats([6.0, None, 5.0], num_ranks=2),
    ended("failed", num_ranks=4) | {"error": "a | b\nc <d> *e*"},
]
ANSWER = answered(RECORDS)


def shown(answer, width, keys=None):
    """What a terminal of this width shows, without its control codes."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, no_color=True, highlight=False)
    sections = [section for section in answer.sections if keys is None or section.key in keys]
    screen.show_report(answer._replace(sections=sections), console)
    return re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())


def test_markdown_has_every_sentence_and_the_tables_of_the_main_questions():
    records = [made(step_breakdown=step_breakdown(num_ranks=1)), ended("failed", num_ranks=2)]
    answer, text = answered(records), markdown.text(answered(records))
    assert all(markdown.escaped(sentence) in text for section in answer.sections for sentence in (section.question, *section.sentences))
    shown = {section.key for section in answer.sections for table in section.tables if _line(table) in text}
    assert shown == {"first", "failed"}
    assert text.splitlines()[2] == markdown.ALL_TABLES


def _line(table):
    return f"| {' | '.join(map(markdown.escaped, table.headings))} |"


@pytest.mark.parametrize("path", sorted(readme.REFERENCE.parent.glob("*.md")), ids=lambda path: path.stem)
def test_a_committed_report_is_that_of_the_committed_records(path, committed):
    assert markdown.text(report_of(committed(path.stem))) == path.read_text()


def test_markdown_escapes_text_from_records():
    assert r"| a \| b c \<d\> \*e\* |" in markdown.text(ANSWER)
    assert markdown.escaped("see [it](u) ![i](u) &lt; ~~x~~") == r"see \[it\](u) \!\[i\](u) \&lt; \~\~x\~\~"


def test_without_a_terminal_nothing_is_truncated_and_control_codes_are_removed(capsys):
    error = "\x1b[31mred\x07 " + " and long" * 20
    answer = answered([made() | {"workload": "cnn\x1b[1m"}, ended("failed", num_ranks=2) | {"error": error}])
    screen.show_report(answer)
    printed = capsys.readouterr().out
    assert "…" not in printed
    for text in (printed, markdown.text(answer)):
        assert "red" in text
        assert not re.search(r"[\x07\x1b]", text)


def test_the_terminal_shows_every_question_and_ends_with_the_answer_in_one_sentence():
    text = shown(ANSWER, 300)
    places = [text.index(section.question) for section in ANSWER.sections]
    assert places == sorted(places)
    assert text.rstrip().endswith(ANSWER.answer.quotation)
    assert all(table.title in text for section in ANSWER.sections for table in section.tables)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_narrow_terminal_truncates_no_cell_and_names_the_columns_left_out(width):
    text = shown(answered([*repeats([9.0, 9.5, 10.0], backend="deepspeed_zero"), made()]), width, ("first", "same"))
    assert "…" not in text
    assert "deepspeed_zero" in text
    assert max(len(line) for line in text.splitlines() if line.startswith(("│", "┃"))) <= width
    left_out = ["".join(names.split()) for names in re.findall(r"terminal too narrow for:[^│┃┏]*", text)]
    assert any("samples/s" in names for names in left_out) == (width < 200)


def test_a_drawing_that_ends_its_process_is_an_error_of_one_line(monkeypatch):
    for program, reason in (("import os; os.abort()", "was ended by SIGABRT"), ("1 / 0", "failed (ZeroDivisionError: division by zero)")):
        monkeypatch.setattr(drawing, "PROGRAM", (sys.executable, "-c", program))
        with refused(f"drawing {reason}"):
            drawing.svgs([{}])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="how much memory V8 reserves is known on x86-64 only")
def test_where_memory_is_short_the_other_exports_are_written_and_the_reason_is_one_line(tmp_path):
    program = f"{BIN / 'python'} -m launch.compare results/reference/approximate --csv {tmp_path}/a.csv --html {tmp_path}/a.html"
    done = completed("bash", "-c", f"ulimit -v 3000000; exec {program}")
    reason = "drawing was ended by SIGTRAP (Fatal process out of memory"
    assert (done.returncode, done.stderr.count("\n"), reason in done.stderr) == (2, 1, True), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]

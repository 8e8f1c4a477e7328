"""The report as Markdown, with GitHub's tables."""

from collections.abc import Iterable

from common.declarations import SHELL_PYTHON
from common.errors import printable
from common.terminal import Table
from launch.report.report import Report

# The sections whose tables stand here; the sentences of the others sum theirs up.
WITH_TABLES = ("baseline", "first", "failed")
ALL_TABLES = (
    f"`{SHELL_PYTHON} -m launch.compare FOLDER --full` prints every table, `--html FILE` makes a page of them, `--csv FILE` has every run."
)


def text(report: Report) -> str:
    """Returns the questions with their sentences, and the tables of the main ones."""
    lines = [f"# Tandem on {escaped(report.machine)}", "", ALL_TABLES, "", *_list(filter(None, [report.answer.quotation]))]
    for section in report.sections:
        lines += ["", f"## {section.question}", "", *_list(section.sentences)]
        for table in section.tables if section.key in WITH_TABLES else ():
            lines += ["", f"### {escaped(table.title)}", "", *lines_of(table)]
    return "\n".join(lines) + "\n"


def _list(sentences: Iterable[str]) -> list[str]:
    return [f"- {escaped(sentence)}" for sentence in sentences]


def lines_of(table: Table) -> list[str]:
    """Returns the lines of a table, without its title."""
    numeric = table.numeric_headings
    rule = "".join("|---:" if heading in numeric else "|---" for heading in table.headings)
    return [_line(table.headings), f"{rule}|", *map(_line, table.texts)]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(escaped, cells))} |"


def escaped(text: str) -> str:
    """Returns a text escaped for one line of Markdown."""
    for mark in "\\|<>*_`[]!&~":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(printable(text).split())

"""The report of a matrix that is running or has just ended."""

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from common.errors import UserError, printable
from common.record.definition import Record
from launch.report import comparable, summary
from launch.report.export import files, screen
from launch.report.glance import answer as glance
from launch.report.glance.answer import Glance
from launch.report.summary import Answer
from launch.report.tables import Section

RELOAD_SECONDS = 5


def conclude(page: Path, records: Sequence[Record], links_to: Callable[[Path], Sequence[str]]) -> None:
    """Writes the page of a matrix, and prints its answer at a glance and where the rest is."""
    try:
        answer = summary.answer(records)
        at_a_glance = glance.answer(answer)
        write_page_of(page, answer, at_a_glance)
        screen.show(at_a_glance, links_to(page))
    except ModuleNotFoundError as problem:
        print(f"no report: {problem}; launch.compare reports these records in the environment of launch/setup.sh", file=sys.stderr)


def write_page(path: Path, records: Sequence[Record]) -> None:
    """Writes the page of a matrix that is running, which a browser reloads. Where that fails, prints a message and returns."""
    try:
        answer = summary.answer(records)
    except UserError as problem:
        _print_once(f"{path} was not written: {printable(str(problem))}")
        return
    except ModuleNotFoundError:
        # `conclude` has a line for this.
        return
    write_page_of(path, answer, glance.answer(answer), RELOAD_SECONDS)


def write_section(path: Path, records: Sequence[Record], section: Section) -> None:
    """Writes a page that has one section alone, as of a verification."""
    answer = Answer(comparable.machine_of(records[0]), [f"{records[0].workload}: {section.sentences[0]}"], [section], [], [])
    write_page_of(path, answer, glance.answer(answer))


def write_page_of(path: Path, answer: Answer, at_a_glance: Glance, reload_seconds: int | None = None) -> None:
    """Writes the page of an answer. Where that fails, prints a message and returns, so that the matrix continues."""
    try:
        # Beside a site's Python there may be no jinja2.
        from launch.report.export import html

        files.write(path, html.text(answer, at_a_glance, reload_seconds))
    except ModuleNotFoundError:
        return
    except (UserError, OSError) as problem:
        _print_once(f"{path} was not written: {printable(str(problem))}")


@functools.cache
def _print_once(line: str) -> None:
    """Prints a line once, since the page is written again for every group of runs, and fails again for the same reason."""
    print(line, file=sys.stderr)

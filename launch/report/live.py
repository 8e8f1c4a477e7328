"""The report of a matrix that is running or has just ended."""

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from common.errors import UserError, printable
from common.record.definition import Record
from launch.report import table
from launch.report.answer import answer_of
from launch.report.export import output_files, screen
from launch.report.findings import Section
from launch.report.report import Report, report_of
from launch.report.runs import Runs

RELOAD_SECONDS = 5


def conclude(page: Path, records: Sequence[Record], links_to: Callable[[Path], Sequence[str]]) -> None:
    """Writes the page of a matrix, and prints its answer, also as one sentence to paste, and where the rest is."""
    try:
        report = report_of(records)
        _write(page, report)
        # The sentence to paste is one line, as where the rest is.
        screen.show(report.answer, [*filter(None, [report.answer.quotation]), *links_to(page)])
    except ModuleNotFoundError as problem:
        print(f"no report: {problem}; launch.compare reports these records in the environment of launch/setup.sh", file=sys.stderr)


def write_page(path: Path, records: Sequence[Record]) -> None:
    """Writes the page of a matrix that is running, which a browser reloads. Where that fails, prints a message and returns."""
    try:
        _write(path, report_of(records), RELOAD_SECONDS)
    except UserError as problem:
        _print_once(f"{path} was not written: {printable(str(problem))}")
    except ModuleNotFoundError:
        # `conclude` has a line for this.
        return


def write_section(path: Path, records: Sequence[Record], section: Section) -> None:
    """Writes a page that has one section alone, as of a verification."""
    _write(path, Report(table.machine(records[0]), Runs(), answer_of(Runs()), [section], []))


def _write(path: Path, report: Report, reload_seconds: int | None = None) -> None:
    """Writes the page of a report. Where that fails, prints a message and returns, so that the matrix continues."""
    try:
        # Beside a site's Python there may be no jinja2.
        from launch.report.export import html

        output_files.write(path, html.text(report, reload_seconds))
    except ModuleNotFoundError:
        return
    except (UserError, OSError) as problem:
        _print_once(f"{path} was not written: {printable(str(problem))}")


@functools.cache
def _print_once(line: str) -> None:
    """Prints a line once, since the page is written again for every group of runs, and fails again for the same reason."""
    print(line, file=sys.stderr)

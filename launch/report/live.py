"""The report of a matrix that is running or has just ended."""

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from common.errors import UserError, printable
from common.record.definition import Record
from launch.report import summary
from launch.report.export import files, screen, terminal
from launch.report.glance import answer as glance
from launch.report.summary import Answer

RELOAD_SECONDS = 5


def show(records: Sequence[Record], links: Sequence[str] = ()) -> None:
    """Prints the layers of a step, if they were measured, the answer of a matrix at a glance, and where the rest is."""
    try:
        answer = summary.answer(records)
        terminal.show(answer._replace(sections=[section for section in answer.sections if section.key == "layers"], notes=[], headline=[]))
        screen.show(glance.answer(answer), links)
    except ModuleNotFoundError as problem:
        print(f"no report: {problem}; launch.compare reports these records in the environment of launch/setup.sh", file=sys.stderr)


def write_page(path: Path, records: Sequence[Record], reload_seconds: int | None = None) -> None:
    """Writes the page of a matrix. Where that fails, prints a message and returns, so that the matrix continues."""
    write_page_of(path, lambda: summary.answer(records), reload_seconds)


def write_page_of(path: Path, answer: Callable[[], Answer], reload_seconds: int | None = None) -> None:
    """Does as `write_page` for an answer that has been made otherwise."""
    try:
        # Beside a site's Python there may be no jinja2.
        from launch.report.export import html

        files.write(path, html.text(answer(), reload_seconds))
    except ModuleNotFoundError:
        # `show` has a line for this.
        return
    except (UserError, OSError) as problem:
        _print_once(f"{path} was not written: {printable(str(problem))}")


@functools.cache
def _print_once(line: str) -> None:
    """Prints a line once, since the page is written again for every group of runs, and fails again for the same reason."""
    print(line, file=sys.stderr)

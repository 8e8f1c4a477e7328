"""Output files: checked before anything is computed, written atomically; and the page of a matrix, which nothing in it may end."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from common import durable
from common.errors import UserError, printable
from launch.report.export.drawing import NotDrawn
from launch.report.report import Report


def check_all(path_of: Mapping[str, Path]) -> None:
    """Raises UserError where one of {option: path} cannot be written, or two are the same file; creates nothing."""
    option_of = {}
    for option, path in path_of.items():
        try:
            if path.is_dir():
                raise UserError(f"{option} {path} is a folder; give the name of a file")
            durable.expect_writable(path)
        except OSError as error:
            raise UserError(f"{option} {path} cannot be written ({error.strerror}); give another file") from None
        if (first := option_of.setdefault(os.path.realpath(path), option)) != option:
            raise UserError(f"{first} and {option} are both {path}; name different files")


def write(path: Path, text: str) -> None:
    """Writes the text durably and atomically; what of the name of a file is not in UTF-8 becomes a question mark."""
    durable.write_text(path, text, errors="replace")


def write_all(text_of: dict[Path, Callable[[], str]]) -> str:
    """Writes {path: function that gives its text}, each also where another fails. Returns what failed in one line, or nothing."""
    failures = []
    for path, text in text_of.items():
        try:
            write(path, text())
        except (NotDrawn, ImportError) as problem:
            # A site's Python may lack Altair.
            failures.append(f"{path} was not written: {problem}")
        except OSError as problem:
            failures.append(f"{path} was not written: {problem.strerror}")
    return "; ".join(failures)


def write_page(path: Path, report: Report) -> None:
    """Writes the page of a report of a matrix. Where that fails, prints a message: the matrix has more to say."""
    try:
        # Beside a site's Python there may be no jinja2.
        from launch.report.export import html

        write(path, html.text(report))
    except ModuleNotFoundError:
        return
    except (UserError, OSError) as problem:
        print(f"{path} was not written: {printable(str(problem))}", file=sys.stderr)

"""Output files: checked before anything is computed, written atomically."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from common import durable
from common.errors import UserError
from launch.report.export.drawing import NotDrawn


def check_all(path_of: Mapping[str, Path]) -> None:
    """Raises UserError where one of {option: path} cannot be written, or two are the same file."""
    option_of = {}
    for option, path in path_of.items():
        check(path, option)
        if (first := option_of.setdefault(os.path.realpath(path), option)) != option:
            raise UserError(f"{first} and {option} are both {path}; name different files")


def check(path: Path, option: str) -> None:
    """Raises UserError, naming the option, where the file cannot be written; creates nothing."""
    try:
        if path.is_dir():
            raise UserError(f"{option} {path} is a folder; give the name of a file")
        durable.expect_writable(path)
    except OSError as error:
        raise UserError(f"{option} {path} cannot be written ({error.strerror}); give another file") from None


def write(path: Path, text: str) -> None:
    """Writes the text durably and atomically; a lone surrogate, which JSON may hold, becomes a question mark."""
    durable.write_text(path, text, errors="replace")


def write_all(text_of: dict[Path, Callable[[], str]]) -> str:
    """Writes {path: function that gives its text}, each also where another fails; what failed in one line, or nothing.

    Raises UserError, before anything is written, where a text is refused.
    """
    texts, failures = {}, []
    for path, text in text_of.items():
        try:
            texts[path] = text()
        except (NotDrawn, ImportError) as problem:
            # A site's Python may lack polars and Altair.
            failures.append(f"{path} was not written: {problem}")
    for path, text in texts.items():
        try:
            write(path, text)
        except OSError as problem:
            failures.append(f"{path} was not written: {problem.strerror}")
    return "; ".join(failures)

"""Reads the records of a report, and names the files that are not records."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from common.errors import UserError
from common.record import reading
from common.record.definition import Record
from common.record.reading import Damaged


def collect(paths: Sequence[Path]) -> tuple[list[Record], list[Damaged]]:
    """Returns the records of files and of folders, recursively and by name, and the files that are not records.

    Raises UserError where a path is missing, and where no record is found.
    """
    if not paths:
        raise UserError("which records? Give files or folders, such as results/MACHINE")
    records, damaged = reading.collect(paths)
    if not records:
        reason = f"; {damaged[0].path}: {damaged[0].reason}" if damaged else ""
        raise UserError(f"there is no record in {', '.join(map(str, paths))}{reason}")
    return records, damaged


def state(paths: Sequence[Path]) -> dict[Path, int]:
    """Returns the modification time of each file, to detect new and changed records. Raises UserError where a path is missing."""
    times = {}
    for path in (file for source in paths for file in reading.files(source, [])):
        with contextlib.suppress(OSError):
            times[path] = path.stat().st_mtime_ns
    return times

"""The cache of this user: files that save time where they are there, and that nothing needs."""

import contextlib
import os
from pathlib import Path

from common import durable


def folder() -> Path | None:
    """Names the folder of the cache, which launch/setup.sh uses too; None where the environment names no base for it."""
    home = os.environ.get("HOME")
    base = os.environ.get("XDG_CACHE_HOME") or (home and f"{home}/.cache")
    return Path(base, "tandem") if base else None


def write(file: Path | None, text: str) -> None:
    """Writes a file of the cache, where that can be done."""
    if file:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            durable.write_text(file, text)


def read(file: Path | None) -> str | None:
    """Reads a file of the cache; returns None where it cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return file.read_text("utf-8") if file else None
    return None

"""The folder of --data-dir, and its files.

Hidden files and folders, whose names begin with a dot, are not data: macOS leaves `._NAME` beside NAME, and editors leave copies.
"""

import contextlib
import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from common.errors import UserError


@contextlib.contextmanager
def searching(folder: Path | None, dataset: str, content: str) -> Iterator[Path]:
    """Encloses the search in the folder for the files of a dataset, which `content` describes.

    Raises UserError for a missing or unreadable folder.
    """
    if folder is None:
        raise UserError(f"--dataset {dataset} requires --data-dir, the folder with {content}")
    try:
        if not folder.is_dir():
            raise UserError(f"--data-dir {folder} is not a folder; give the one with {content}")
        yield folder
    except OSError as error:
        raise UserError(f"--data-dir {folder} cannot be read ({error.strerror}); give the folder with {content}") from None


def visible(folder: Path) -> list[os.DirEntry]:
    """Returns the files and folders in a folder in the order of their names, without hidden ones.

    Raises UserError for a link that leads nowhere.
    """
    with os.scandir(folder) as entries:
        visible_entries = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
    for entry in visible_entries:
        if entry.is_symlink():
            expect_target(Path(entry.path))
    return visible_entries


def expect_target(path: Path) -> None:
    """Raises UserError for a link that leads nowhere."""
    if path.is_symlink() and not path.exists():
        raise UserError(f"{path} is a link to {os.readlink(path)}, which is not there; fetch what it links to, or take it away")


def content(path: Path, is_gzipped: bool = False) -> bytes:
    """Returns the bytes of a file, which are unpacked if they are gzipped. Raises UserError for a file that cannot be read or is damaged.

    A file that `is_gzipped` by its name is damaged if its bytes are not.
    """
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if is_gzipped or raw.startswith(b"\x1f\x8b") else raw
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}); copy it again") from None

"""The folder of --data-dir, and its files."""

import contextlib
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from common import durable
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


def content(path: Path, is_gzipped: bool = False) -> bytes:
    """Returns the bytes of a file, which are unpacked if they are gzipped. Raises UserError for a file that cannot be read or is damaged.

    A file that `is_gzipped` by its name is damaged if its bytes are not.
    """
    try:
        raw = durable.read_bytes(path)
        return gzip.decompress(raw) if is_gzipped or raw.startswith(b"\x1f\x8b") else raw
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}); copy it again") from None

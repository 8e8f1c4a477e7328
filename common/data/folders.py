"""The folder of --data-dir, and its files."""

import contextlib
import gzip
import zlib

from common.errors import UserError


@contextlib.contextmanager
def searching(folder, dataset, content):
    """Encloses the search for the files of a dataset, which `content` describes. Raises UserError for a missing or unreadable folder."""
    if folder is None:
        raise UserError(f"--dataset {dataset} requires --data-dir, the folder with {content}")
    try:
        if not folder.is_dir():
            raise UserError(f"--data-dir {folder} is not a folder; give the one with {content}")
        yield
    except OSError as error:
        raise UserError(f"--data-dir {folder} cannot be read ({error.strerror}); give the folder with {content}") from None


def content(path, is_gzipped=False):
    """Returns the bytes of a file, unpacked where it begins as gzip. Raises UserError for one that cannot be read or is damaged.

    One that must be gzipped is damaged where it does not begin so.
    """
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if is_gzipped or raw.startswith(b"\x1f\x8b") else raw
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}); copy it again") from None

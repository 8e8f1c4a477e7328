"""Output files: checked before anything is computed, written atomically."""

import os

from common import durable
from common.errors import UserError


def check(path, option):
    """Raises UserError, naming the option, where the file cannot be written; creates nothing."""
    if path.is_dir():
        raise UserError(f"{option} {path} is a folder; give the name of a file")
    if path.exists() and not os.access(path, os.W_OK):
        raise UserError(f"{option} {path} cannot be written; give another file")
    probe = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"{option} {path} cannot be written ({error.strerror}); give another file") from None


def write(path, text):
    """Writes the text durably and atomically; a lone surrogate, which JSON may hold, becomes a question mark."""
    with durable.replacing(path) as part:
        part.write_text(text, errors="replace")

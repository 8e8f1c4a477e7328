"""Output files: checked before anything is computed, written atomically."""

import os

from common import durable
from common.errors import UserError


def check_all(path_of):
    """Raises UserError where one of {option: path} cannot be written, or two are the same file; a path may be None."""
    option_of = {}
    for option, path in path_of.items():
        if path:
            check(path, option)
            if (first := option_of.setdefault(os.path.realpath(path), option)) != option:
                raise UserError(f"{first} and {option} are both {path}; name different files")


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

"""Where an export goes: looked at before anything is computed, written whole or not at all."""

import os

from common.errors import UserError


def check(path, option):
    """Raises UserError, naming the option, where a file cannot be written at a path; leaves nothing behind."""
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
    """Writes the text to a file beside `path` and moves it there; half a character, as a record may hold, becomes a question mark."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, errors="replace")
    os.replace(part, path)

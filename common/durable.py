"""Atomic and durable writes: a file is there whole or not at all, also after a crash of the machine."""

import contextlib
import os
import shutil

# What a file is called until it is whole.
PART = ".part"


@contextlib.contextmanager
def replacing(path, is_folder=False):
    """Gives the path of a part to write, or of an empty folder to fill; afterwards moves it to `path`, which is replaced in one step.

    The part is on the disk before the move, and the move before this returns: ext4 and XFS may otherwise write the new name
    before the data (fsync(2); Pillai et al., OSDI 2014, section 4). An exception removes the part and leaves `path` as it was.
    """
    part = path.with_name(path.name + PART)
    try:
        if is_folder:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
        yield part
        if is_folder:
            # An fsync for each of its files would take a disk milliseconds.
            os.sync()
        else:
            _sync(part)
        os.replace(part, path)
    except BaseException:
        if is_folder:
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def write_text(path, text):
    """Writes a text file, which readers see as it was or as it is then, never in between."""
    with replacing(path) as part:
        part.write_text(text)


def _sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Durable writes: a file is there whole or not at all, also after a crash of the machine."""

import contextlib
import errno
import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

# What a file is called until it is whole.
PART = ".part"
TOKEN_BYTES = 4


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives the path of a temporary file to write; afterwards moves it to `path`, which is replaced in one step.

    That file is on the disk before the move, and the move before this returns: ext4 and XFS may otherwise write the new name
    before the data (fsync(2); Pillai et al., OSDI 2014, section 4). An exception removes it and leaves `path` as it was.
    A link stays, and the file that it leads to is replaced; permissions are kept. An OSError of that file names `path`.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f"{_stem(target)}.{secrets.token_hex(TOKEN_BYTES)}{target.suffix}{PART}")
    try:
        temporary.touch(exist_ok=False)
        if target.exists():
            shutil.copymode(target, temporary)
        mode = temporary.stat().st_mode
        yield temporary
        # A library may have replaced it by a file of its own, which others cannot read.
        temporary.chmod(mode)
        # Windows writes to the disk only what it has opened for writing, and opens no folder.
        _sync(temporary, os.O_RDWR)
        os.replace(temporary, target)
        with contextlib.suppress(PermissionError):
            _sync(target.parent, os.O_RDONLY)
    except BaseException as problem:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(problem, OSError) and problem.errno and (problem.filename is None or str(problem.filename).endswith(PART)):
            raise OSError(problem.errno, problem.strerror, str(path)) from None
        raise


def write_text(path: Path, text: str, errors: str = "strict") -> None:
    """Replaces a text file in UTF-8 on every system. A device or a pipe is not replaced, but gets the text."""
    if _is_stream(path):
        try:
            path.write_text(text, encoding="utf-8", errors=errors)
        except OSError as problem:
            raise OSError(problem.errno, problem.strerror, str(path)) from None
        return
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors=errors, newline="")


def read_bytes(path: Path) -> bytes:
    """Reads a regular file. Raises OSError as `expect_regular` does."""
    expect_regular(path)
    return path.read_bytes()


def expect_regular(path: Path) -> None:
    """Raises OSError for a pipe, whose opening would wait for a writer, and for a device, which may not end."""
    if _is_stream(path):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def expect_writable(path: Path) -> None:
    """Raises OSError where a file cannot be written, as far as that shows before; leaves nothing behind."""
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if not _is_stream(path):
        temporary = Path(os.path.realpath(path)).with_name(secrets.token_hex(TOKEN_BYTES) + PART)
        temporary.touch(exist_ok=False)
        temporary.unlink()


def remove_parts(path: Path) -> None:
    """Removes the parts of a file that no process writes any more: killed writers have left them."""
    for temporary in path.parent.glob(f"{glob.escape(_stem(path))}.{'?' * 2 * TOKEN_BYTES}{path.suffix}{PART}"):
        temporary.unlink(missing_ok=True)


def _stem(target: Path) -> str:
    # The name may be as long as one can be.
    return os.fsdecode(os.fsencode(target.stem)[:200])


def _is_stream(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Durable writes: a file is there whole or not at all, also after a crash of the machine. What is no file is written into."""

import contextlib
import errno
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

# What a file is called until it is whole.
PART = ".part"
# A part that is older was left by a writer that was killed.
LEFT_SECONDS = 3600
TOKEN_LENGTH = 8


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives the path of a part to write; afterwards moves it to `path`, which is replaced in one step.

    The part is on the disk before the move, and the move before this returns: ext4 and XFS may otherwise write the new name
    before the data (fsync(2); Pillai et al., OSDI 2014, section 4). An exception removes the part and leaves `path` as it was.
    A link stays, and the file that it leads to is replaced; owner and permissions are kept. A device, a pipe and the output of this
    process are not replaced, but get the bytes of the part. An OSError of the part names `path`.
    """
    part = None
    try:
        if is_stream(path):
            part = _part_of(Path(tempfile.gettempdir(), "tandem"))
            _create(part, 0o600)
            yield part
            _copy(part, path)
            part.unlink()
        else:
            target = Path(os.path.realpath(path))
            remove_left(target, LEFT_SECONDS)
            part = _part_of(target)
            # Others may not be allowed to read what is replaced.
            _create(part, 0o600 if target.exists() else 0o666)
            yield part
            # Windows writes to the disk only what it has opened for writing.
            _sync(part, os.O_RDWR)
            _keep_owner_and_permissions(target, part)
            os.replace(part, target)
            # Windows opens no folder.
            with contextlib.suppress(PermissionError):
                _sync(target.parent, os.O_RDONLY)
    except BaseException as problem:
        if part:
            part.unlink(missing_ok=True)
        if isinstance(problem, OSError) and _is_of_part(problem):
            raise OSError(problem.errno, problem.strerror, str(path)) from None
        raise


def write_text(path: Path, text: str, errors: str = "strict") -> None:
    """Writes a text file in UTF-8 on every system, which readers see as it was or as it is then, never in between."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8", errors=errors, newline="")


def expect_writable(path: Path) -> None:
    """Raises OSError where `replacing` cannot write a file, as far as that shows before; leaves nothing behind."""
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if not is_stream(path):
        part = _part_of(Path(os.path.realpath(path)))
        _create(part, 0o600)
        part.unlink()


def is_stream(path: Path) -> bool:
    """Returns whether a path names what cannot be replaced: a device, a pipe, a socket, or the file that is this process's output."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)) or _output(status) is not None


def _output(status: os.stat_result) -> int | None:
    """Returns the descriptor of standard output or error, whichever is the file of this status; None where neither is."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), status):
                return descriptor
    return None


def _is_of_part(problem: OSError) -> bool:
    # That the reader of a pipe has ended is no failure of a path.
    is_of_system = problem.errno not in (None, errno.EPIPE)
    return is_of_system and (problem.filename is None or str(problem.filename).endswith(PART))


def _around_token(target: Path) -> tuple[str, str]:
    """Returns what the name of a target's part begins and ends with. Readers know it by its end, such as .json.part."""
    # The name may be as long as one can be.
    return os.fsdecode(os.fsencode(target.name.removesuffix(target.suffix))[:200]) + ".", target.suffix + PART


def _part_of(target: Path) -> Path:
    """Returns the path of a part beside a target, of a name that no other writer has. An interruption must find it before it exists."""
    return target.with_name(secrets.token_hex(TOKEN_LENGTH // 2).join(_around_token(target)))


def _create(part: Path, mode: int) -> None:
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))


def remove_left(target: Path, at_least_seconds: float) -> None:
    """Removes the parts of a file, not of a link, that are of this age: killed writers have left them."""
    start, end = _around_token(target)
    # A folder may be written to by who cannot read it, and others may remove the same part.
    with contextlib.suppress(PermissionError, FileNotFoundError), os.scandir(target.parent) as entries:
        for entry in entries:
            is_part = entry.name.startswith(start) and entry.name.endswith(end) and len(entry.name) == len(start + end) + TOKEN_LENGTH
            if is_part and time.time() - entry.stat().st_mtime >= at_least_seconds:
                os.unlink(entry)


def _keep_owner_and_permissions(target: Path, part: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(target)
        # Only root can give a file away, and Windows has no such call.
        with contextlib.suppress(PermissionError, AttributeError):
            os.chown(part, status.st_uid, status.st_gid)
        os.chmod(part, stat.S_IMODE(status.st_mode))


def _copy(part: Path, stream: Path) -> None:
    """Writes the bytes of a part into a stream; into the output after what has been printed."""
    descriptor = _output(os.stat(stream))
    if descriptor is None:
        with part.open("rb") as source, stream.open("wb") as destination:
            shutil.copyfileobj(source, destination)
    else:
        (sys.stdout if descriptor == 1 else sys.stderr).flush()
        # Under its descriptor, since what is opened anew begins at the start of the file.
        with part.open("rb") as source, open(descriptor, "wb", closefd=False) as destination:
            shutil.copyfileobj(source, destination)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

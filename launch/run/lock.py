"""One matrix at a time on a machine: two at once would measure each other's load."""

import contextlib
import errno
import fcntl
import os
import pwd
import socket
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from common.errors import UserError
from launch.launchers.commands import Start, allocation
from launch.run.plan import Job

# For all users of this machine, and so in no folder that is one user's own. Tests have another one.
PATH = "/tmp/tandem-matrix.lock"
VARIABLE = "TANDEM_LOCK"
TEXT_BYTES, MAX_PATH_SHOWN = 1024, 200
ROOT_USER = 0
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def path_of(folder: Path, jobs: Iterable[Job | Start]) -> Path:
    """Returns the file to lock for jobs with their records in a folder.

    It is this machine's file, or one in the folder where ranks are on several nodes or in an allocation.
    """
    if not allocation() and all(job.num_nodes == 1 for job in jobs):
        return Path(os.environ.get(VARIABLE, PATH))
    return folder.absolute() / f".matrix-{allocation() or 'nodes'}.lock"


def expect_free(folder: Path, jobs: Iterable[Job | Start], share_machine: bool) -> None:
    """Raises UserError where another matrix has the lock. Makes and changes no file."""
    path = path_of(folder, jobs)
    descriptor = None if share_machine else _open_existing(path)
    if descriptor is not None:
        try:
            if not try_lock(descriptor, path):
                raise _refusal(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def held(folder: Path, jobs: Iterable[Job | Start], share_machine: bool) -> Iterator[None]:
    """Holds the lock for jobs with their records in a folder; with `share_machine` only if nobody else has it.

    The kernel releases it with this process, however that ends; the file stays. Raises UserError where another matrix has the lock.
    """
    path = path_of(folder, jobs)
    descriptor = _open_or_make(path)
    try:
        if try_lock(descriptor, path):
            # Whoever starts a matrix later reads it.
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            text = f"pid {os.getpid()} on {socket.gethostname()}, since {since}, results in {folder.absolute()}\n"
            # The file system may be full.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, text.encode(errors="replace"), 0)
        elif not share_machine:
            raise _refusal(descriptor)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def waited_for(path: Path) -> Iterator[None]:
    """Holds the lock of a file as soon as nobody else does; where the file system has no locks, at once."""
    descriptor = _open_or_make(path)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _refusal(descriptor: int) -> UserError:
    """Returns the error about the matrix that holds the lock, with the first line of its file, in characters that a terminal prints."""
    line = os.pread(descriptor, TEXT_BYTES, 0).decode(errors="replace").partition("\n")[0]
    holder = "".join(character if character.isprintable() else "?" for character in line).strip()
    if (owner := os.fstat(descriptor).st_uid) not in (os.geteuid(), ROOT_USER):
        holder += f"; so says the file of {_name_of(owner)}"
    return UserError(
        f"another matrix is running here ({holder or 'it has just begun'}); wait for it, or give --share-machine: "
        "each of the two would then measure the other's load"
    )


def _name_of(user: int) -> str:
    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user number {user}"


def _open_or_make(path: Path) -> int:
    """Opens the file, which it makes where there is none, and returns its descriptor. All users may write it.

    Raises UserError as `_open` does.
    """
    # Linux may refuse O_CREAT for a file of another user in /tmp (fs.protected_regular).
    descriptor = _open_existing(path)
    if descriptor is None:
        descriptor = _open(path, os.O_RDWR | os.O_CREAT)
        # The umask does not apply to this. Where another user has just made the file, it is done already.
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, 0o666)
    return descriptor


def _open_existing(path: Path) -> int | None:
    """Opens the file, if there is one, and returns its descriptor. Raises UserError as `_open` does."""
    try:
        return _open(path, os.O_RDWR)
    except FileNotFoundError:
        return None


def _open(path: Path, flags: int) -> int:
    """Opens a file and returns its descriptor. Raises FileNotFoundError where there is none.

    Raises UserError where it cannot be opened, and where it is not a regular file with one name: what else may lie there, such as a link,
    would be written into, or block.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as problem:
        if problem.errno == errno.ENOENT and not flags & os.O_CREAT:
            raise
        raise _unusable(path, f"cannot be opened ({problem.strerror})") from None
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        return descriptor
    os.close(descriptor)
    raise _unusable(path, "is not a regular file" if not stat.S_ISREG(status.st_mode) else "is a file with another name too")


def _unusable(path: Path, reason: str) -> UserError:
    name = str(path) if len(str(path)) <= MAX_PATH_SHOWN else f"{str(path)[:MAX_PATH_SHOWN]}…"
    return UserError(f"the lock {name!r} {reason}; remove it, or name another file in {VARIABLE}")


def try_lock(descriptor: int, path: Path) -> bool:
    """Locks the file, unless another process has locked it, and tells whether none has. Prints a line where there are no locks."""
    try:
        if reason := lock(descriptor):
            print(f"{path} {reason}", file=sys.stderr)
    except BlockingIOError:
        return False
    return True


def lock(descriptor: int) -> str | None:
    """Locks an open file. Returns a description of the problem where its file system has no locks.

    Raises BlockingIOError where another process has locked it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        if problem.errno not in WITHOUT_LOCKS:
            raise
        return f"cannot be locked ({problem.strerror}): another matrix at the same time is not noticed"
    return None

"""One matrix at a time on a machine: two at once would measure each other's load.

The lock is the kernel's on a file (flock), which ends with the process that has it. filelock empties the file that others read the holder
from, and makes it for one user alone.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from common.command_line import shortened
from common.errors import UserError, printable
from launch.launchers.commands import allocation
from launch.run.plan import Job

# For all users of this machine, and so in no folder that is one user's own. Tests have another one.
PATH = "/tmp/tandem-matrix.lock"
VARIABLE = "TANDEM_LOCK"
TEXT_BYTES, MAX_PATH_SHOWN = 1024, 200
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def path_of(folder: Path, jobs: Iterable[Job]) -> Path:
    """Returns the file to lock for jobs with their records in a folder.

    It is this machine's file, or one in the folder where ranks are on several nodes or in an allocation, whose name may be any text.
    """
    if not (name := allocation()) and all(job.num_nodes == 1 for job in jobs):
        return Path(os.environ.get(VARIABLE, PATH))
    allocated = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:16] if name else "nodes"
    return folder.absolute() / f".matrix-{allocated}.lock"


def expect_free(folder: Path, jobs: Iterable[Job], share_machine: bool) -> None:
    """Raises UserError where another matrix has the lock. Makes and changes no file."""
    path = path_of(folder, jobs)
    if share_machine or not os.path.lexists(path):
        return
    with _opened(path) as descriptor:
        if not try_lock(descriptor, path):
            raise _refusal(descriptor)


@contextlib.contextmanager
def locked(folder: Path, jobs: Iterable[Job], share_machine: bool) -> Iterator[None]:
    """Holds the lock for jobs with their records in a folder; with `share_machine` only if nobody else has it.

    The file stays. Raises UserError where another matrix has the lock.
    """
    path = path_of(folder, jobs)
    with _opened(path) as descriptor:
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


def _refusal(descriptor: int) -> UserError:
    """Returns the error about the matrix that holds the lock, with the first line of its file."""
    line = os.pread(descriptor, TEXT_BYTES, 0).decode(errors="replace").partition("\n")[0].replace("\0", "")
    return UserError(
        f"another matrix is running here ({printable(line).strip() or 'it has just begun'}); wait for it, or give --share-machine: "
        "each of the two would then measure the other's load"
    )


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Opens the file, which it makes for all users where there is none; the context is its descriptor.

    Raises UserError where it cannot be opened, as a link, into whose target it would write.
    """
    # Linux may refuse O_CREAT for a file of another user in /tmp (fs.protected_regular).
    is_new = not os.path.lexists(path)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if is_new else 0), 0o666)
    except OSError as problem:
        reason = f"the lock {shortened(str(path), MAX_PATH_SHOWN)!r} cannot be opened ({problem.strerror})"
        raise UserError(f"{reason}; remove it, or name another file in {VARIABLE}") from None
    try:
        if is_new:
            # The umask does not apply to this. Where another user has just made the file, it is done already.
            with contextlib.suppress(PermissionError):
                os.fchmod(descriptor, 0o666)
        yield descriptor
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, path: Path) -> bool:
    """Locks the file, unless another process has locked it, and tells whether none has. Prints a line where there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as problem:
        if problem.errno not in WITHOUT_LOCKS:
            raise
        print(f"{path} cannot be locked ({problem.strerror}): another matrix at the same time is not noticed", file=sys.stderr)
    return True

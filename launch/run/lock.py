"""One matrix at a time on a machine: two at once would measure each other's load."""

import contextlib
import errno
import fcntl
import os
import socket
import sys
import time
from pathlib import Path

from common.errors import UserError
from launch.launchers.commands import allocation

# For all users of this machine, and so in no folder that is one user's own. Tests have another one.
PATH = "/tmp/tandem-matrix.lock"
VARIABLE = "TANDEM_LOCK"
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def path_of(folder, jobs):
    """The file to lock for jobs, or Starts, with their records in a folder.

    It is this machine's, or one in the folder where ranks are on several nodes or in an allocation.
    """
    if not allocation() and all(job.num_nodes == 1 for job in jobs):
        return Path(os.environ.get(VARIABLE, PATH))
    return Path(folder).absolute() / f".matrix-{allocation() or 'nodes'}.lock"


def expect_free(folder, jobs, share_machine):
    """Raises UserError where another matrix has the lock. Makes and changes no file."""
    path = path_of(folder, jobs)
    if path.exists() and not share_machine:
        descriptor = _open(path)
        try:
            if not is_locked_here(descriptor, path):
                raise _refusal(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def held(folder, jobs, share_machine):
    """Holds the lock for jobs with their records in a folder; with `share_machine` only if nobody else has it.

    The kernel releases it with this process, however that ends; the file stays. Raises UserError where another matrix has the lock.
    """
    path = path_of(folder, jobs)
    descriptor = _open(path)
    try:
        if is_locked_here(descriptor, path):
            # For those who come later.
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            text = f"pid {os.getpid()} on {socket.gethostname()}, since {since}, results in {Path(folder).absolute()}\n"
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text.encode(), 0)
        elif not share_machine:
            raise _refusal(descriptor)
        yield
    finally:
        os.close(descriptor)


def _refusal(descriptor):
    """The UserError about the matrix that holds the lock."""
    holder = os.pread(descriptor, 4096, 0).decode(errors="replace").strip()
    return UserError(
        f"another matrix is running here ({holder or 'it has just begun'}); wait for it, or give --share-machine: "
        "each of the two would then measure the other's load"
    )


def _open(path):
    """A descriptor of the file, which all users may write. Raises UserError where it cannot be opened."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        # Linux may refuse O_CREAT for a file of another user in /tmp (fs.protected_regular).
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags)
        descriptor = os.open(path, flags | os.O_CREAT, 0o666)
        # Past the umask; where another user has just made the file, it is done already.
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, 0o666)
        return descriptor
    except OSError as problem:
        raise UserError(f"the lock {path} cannot be opened ({problem.strerror}); remove it, or name another file in {VARIABLE}") from None


def is_locked_here(descriptor, path):
    """Locks the file unless another process has. Returns whether none has; where the file system has no locks, it prints that."""
    try:
        if reason := lock(descriptor):
            print(f"{path} {reason}", file=sys.stderr)
    except BlockingIOError:
        return False
    return True


def lock(descriptor):
    """Locks an open file. Returns, in words, that its file system has no locks; else None.

    Raises BlockingIOError where another process has locked it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        if problem.errno not in WITHOUT_LOCKS:
            raise
        return f"cannot be locked ({problem.strerror}): another matrix at the same time is not noticed"
    return None

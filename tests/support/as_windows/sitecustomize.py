"""Hides what Windows lacks. With this folder in PYTHONPATH Python imports this module at its start, also in the process that draws."""

import builtins
import errno
import fcntl
import os
import signal

OURS = ("common", "frameworks", "launch")
# The packages here are those of Linux, and import them.
HIDDEN_FROM_OURS = ("fcntl", "grp", "posix", "pwd", "resource", "termios", "tty")
CALLS = (
    "O_DIRECTORY", "O_NONBLOCK", "chown", "fchown", "fork", "getgid", "getpgid", "getuid", "geteuid", "killpg", "mkfifo", "nice",
    "sched_getaffinity", "sched_setaffinity", "setsid", "statvfs", "wait4",
)  # fmt: skip
SIGNALS = ("SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGSTOP", "SIGUSR1", "SIGUSR2", "SIGXCPU")

import_module, open_file, sync = builtins.__import__, os.open, os.fsync


def import_for(name, importer=None, *arguments, **named):
    package = (importer or {}).get("__package__") or ""
    if name in HIDDEN_FROM_OURS and package.partition(".")[0] in OURS:
        raise ModuleNotFoundError(f"{name} is not on Windows")
    return import_module(name, importer, *arguments, **named)


def open_no_folder(path, *arguments, **named):
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return open_file(path, *arguments, **named)


def sync_what_is_written(descriptor):
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    sync(descriptor)


builtins.__import__, os.open, os.fsync = import_for, open_no_folder, sync_what_is_written
for module, names in ((os, CALLS), (signal, SIGNALS)):
    for name in names:
        delattr(module, name)

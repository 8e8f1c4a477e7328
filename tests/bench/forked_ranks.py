"""Ranks that are forked from a process with the imports of their backend, for measurements in which imports would take most of the time.

A launcher starts STAND_IN for each rank. It hands its variables and open files, the launcher's among them, to `serve`, which forks the
rank. To the launcher it is the rank: it leaves when the rank has, with the same exit status or by the same signal.
"""

import array
import contextlib
import ctypes
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback

PDEATHSIG = 1
# What a library imports when it is first used: {library: module}.
LATER = {"torch": "torch._dynamo"}
# Without site-packages, so that it starts in milliseconds.
STAND_IN = """
import array, json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
server.connect(sys.argv[1])
mine = server.fileno()
files = []
for name in os.listdir("/proc/self/fd"):
    try:
        os.fstat(int(name))
    except OSError:
        continue
    if int(name) != mine:
        files.append(int(name))
message = json.dumps({"files": files, "variables": dict(os.environ), "folder": os.getcwd(), "arguments": sys.argv[2:]}).encode()
server.sendall(len(message).to_bytes(4, "big"))
server.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
server.sendall(message)
for file in files:
    os.close(file)
status = int(server.recv(16) or b"1")
if status < 0:
    os.kill(os.getpid(), -status)
os._exit(status)
"""


def command(path, *arguments):
    """The command of a rank whose server listens at a path."""
    return [sys.executable, "-IS", "-c", STAND_IN, path, *map(str, arguments)]


def begin(module, path):
    """Forks the server of a module; returns its process id when it is ready."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(64)
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)
            importlib.import_module(module)
            for name in (later for library, later in LATER.items() if library in sys.modules):
                importlib.import_module(name)
            # A fork has neither the threads nor the MPI of its parent.
            assert "mpi4py.MPI" not in sys.modules, f"{module} begins MPI when it is imported"
            os.write(writes, b"x")
            serve(module, listener)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writes)
    listener.close()
    ready = os.read(reads, 1)
    os.close(reads)
    if not ready:
        raise RuntimeError(f"{module} could not be imported")
    return pid


def serve(module, listener):
    """Forks a keeper for each rank that a launcher starts, until it is killed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            keep(module, connection)
        connection.close()


def keep(module, connection):
    """Forks a rank and tells its stand-in how it ended; ends the rank if its launcher has killed the stand-in. Never returns."""
    size = int.from_bytes(_received(connection, 4), "big")
    _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(256 * 4))
    there = array.array("i")
    for _, _, content in ancillary:
        there.frombytes(content)
    start = json.loads(_received(connection, size))
    pid = os.fork()
    if pid == 0:
        connection.close()
        become(module, start, list(there))
    for file in there:
        os.close(file)
    descriptor = os.pidfd_open(pid)
    ready, _, _ = select.select([descriptor, connection], [], [])
    if descriptor not in ready:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def become(module, start, there):
    """Becomes the rank. Never returns."""
    ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)
    # Out of the way first: one's number may be that of another's copy.
    above = [os.dup2(file, 1000 + index) for index, file in enumerate(there)]
    for file in there:
        os.close(file)
    for file, number in zip(above, start["files"], strict=True):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(start["variables"])
    os.chdir(start["folder"])
    sys.argv = [module, *start["arguments"]]
    del sys.modules[module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    os._exit(70)


def _received(connection, size):
    content = b""
    while len(content) < size:
        part = connection.recv(size - len(content))
        if not part:
            os._exit(1)
        content += part
    return content

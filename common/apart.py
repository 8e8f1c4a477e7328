"""Calls of functions that run foreign code, such as a user's file, in a process of their own.

That code may end its process, hang, print, start threads or change the folder: the process that asks has only the answer, JSON of the type
that the function returns, which comes through a descriptor of its own.
"""

import contextlib
import ctypes
import importlib
import inspect
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from common.command_line import shortened
from common.declarations import ROOT
from common.errors import UserError, printable

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# Imports from a parallel file system may take minutes.
LIMIT_SECONDS = 600.0
POLL_SECONDS = 0.05
# Of what the process prints its end is kept.
MAX_OUTPUT_BYTES = 2**16
# linux/prctl.h.
PR_SET_PDEATHSIG = 1
LIBC = ctypes.PyDLL(None)
# It is set in a process that runs foreign code itself, as a rank does.
HERE = threading.Event()


def begin() -> None:
    """Makes this process one that runs foreign code itself: calls are then plain calls."""
    HERE.set()


def call(subject: str, function: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
    """Calls a function of a module in a process of its own and returns its answer. The arguments can be pickled.

    Raises the function's UserError, and one that begins with `subject`, such as `--model net.py`, where the process ends without an answer.
    """
    if HERE.is_set():
        return function(*arguments, **named)
    # A program's own module is named __main__.
    inner: Any = inspect.unwrap(function)
    command = [sys.executable, str(ROOT / "launch" / "run_module.py"), "common.apart", inner.__globals__["__spec__"].name, inner.__name__]
    temporary = tempfile.TemporaryDirectory(prefix="tandem-", ignore_cleanup_errors=True)
    with os.fdopen(os.memfd_create("answer"), "rb") as answer, temporary:
        end = _run([*command, str(answer.fileno())], pickle.dumps((arguments, named)), answer.fileno(), temporary.name)
        answer.seek(0)
        text = answer.read()
    try:
        mistake, returned = _adapter(inner).validate_json(text)
    except ValueError:
        raise UserError(f"{subject}: {end}") from None
    if mistake is not None:
        raise UserError(mistake)
    return returned


def _run(command: list[str], arguments: bytes, answer: int, temporary: str) -> str:
    """Runs the process of a call, to its end or to the time limit, and describes how it ended. `temporary`: its temporary folder."""
    output, deadline = b"", time.monotonic() + LIMIT_SECONDS
    # It has a session of its own, in which what it has started ends with it.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=[answer], start_new_session=True,
        env=os.environ | {"TMPDIR": temporary},
    )  # fmt: skip
    assert process.stdin, "it is a pipe"
    assert process.stdout, "it is a pipe"
    try:
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(arguments)
        is_over = False
        while not is_over:
            is_over = process.poll() is not None or time.monotonic() > deadline
            if select.select([process.stdout], [], [], 0 if is_over else POLL_SECONDS)[0]:
                part = os.read(process.stdout.fileno(), MAX_OUTPUT_BYTES)
                output = (output + part)[-MAX_OUTPUT_BYTES:]
                if not part:
                    time.sleep(POLL_SECONDS)
        status = process.poll()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    lines = [printable(line) for line in output.decode(errors="replace").split("\n") if line.strip()]
    ended = f"has not ended after {LIMIT_SECONDS:g} s" if status is None else describe_status(status)
    return f"its process {ended}{f'; its last line: {shortened(lines[-1], 200)}' if lines else ', without a line of output'}"


def describe_status(status: int) -> str:
    """Describes how a process ended; `status` is less than 0 for one that a signal ended."""
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"


def end_with_parent(number: int) -> None:
    """Lets the kernel send this process a signal when its parent ends, also while the process is stopped; 0: no signal any more."""
    LIBC.prctl(PR_SET_PDEATHSIG, number)


def _adapter(function: Callable[..., Any]) -> "TypeAdapter[tuple[str | None, Any]]":
    """Returns pydantic's reader and writer of the answer of a function: a UserError's text, or what the function has returned."""
    # Imported here, since ranks need not have it.
    from pydantic import TypeAdapter

    kind: Any = typing.get_type_hints(function)["return"]
    return TypeAdapter(tuple[str | None, kind | None])  # pyright: ignore[reportInvalidTypeForm]


def main(module: str, name: str, descriptor: str) -> None:
    """Runs the process of a call: its arguments are on standard input."""
    end_with_parent(signal.SIGKILL)
    begin()
    function = inspect.unwrap(getattr(importlib.import_module(module), name))
    arguments, named = pickle.load(sys.stdin.buffer)
    answer: tuple[str | None, Any] = None, None
    try:
        answer = None, function(*arguments, **named)
    except UserError as mistake:
        answer = str(mistake), None
    with open(int(descriptor), "wb") as file:
        file.write(_adapter(function).dump_json(answer))
    # Threads that are no daemons would keep the process.
    os._exit(0)


if __name__ == "__main__":
    # The module that others import, not this copy of it.
    importlib.import_module("common.apart").main(*sys.argv[1:])

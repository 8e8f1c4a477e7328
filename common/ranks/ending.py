"""The end of a rank's process: what it reports of a failure, and `leave`, by which every rank ends.

| when | in MPI | the process |
| --- | --- | --- |
| the run has completed | finalizes | runs the exit handlers of the C library (1) |
| it fails before the ranks have met in MPI | meets the others, finalizes | the same, with the status of the first that failed (2) |
| it fails later, under Hydra | aborts (3) | |
| it fails elsewhere, or is interrupted | nothing | ends at once (4) |
| it hangs, or gets a signal | nothing, since its main thread may be there | ends at once (4) |

1. By one of them MPICH 5 notifies its launcher that the rank is done. A launcher without this notice kills the ranks that leave later.
2. Each learns there of the failure, and rank 0 writes it into the record.
3. After a mere exit Hydra reports the ranks that it ends as killed.
4. The end of the interpreter would abort some runs: Gloo's threads release their last tensors late and need it.

The one time limit here is SECONDS_FOR_OTHERS: so long a rank waits before its end ends others, which may be about to write a record or to
report a hang, and before it reports alone an error that all ranks may have.
"""

import contextlib
import ctypes
import errno
import functools
import json
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NoReturn

from common.command_line import NO_ROOM, shortened
from common.errors import RunError, UserError
from common.ranks import machine, meeting, messages
from common.ranks.launcher_variables import Ranks, from_environment
from common.ranks.meeting import AnotherRankFailed, Failure
from common.ranks.messages import Hang, Position
from common.ranks.watchdog import Late

SECONDS_FOR_OTHERS = 3.0
INTERRUPTED = 130
NUM_FRAMES = 20
# By a variable that Hydra, the launcher of MPICH and Intel MPI, sets for its ranks, and no other launcher. A user's file may clear it.
UNDER_HYDRA = "MPI_LOCALRANKID" in os.environ
# Set by torchrun to the path of this worker, NUMBER/error.json in a folder of all workers of the node.
TORCHRUN_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
# The signals that a batch system sends before and at the end of a job, that of a limit on processor time, and those of a terminal.
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
# What all ranks get from their launcher where one has failed, and from a terminal.
OF_ALL = (signal.SIGINT, signal.SIGTERM)

MAX_ERROR = 2000
OUT_OF_MEMORY = re.compile(r"can(?:'t|not) allocate memory|out of memory|OOM when allocating|bad_alloc|ALLOC_FAILED", re.IGNORECASE)


def leave(status: int = 0, with_others: bool = False, at_once: bool = False) -> NoReturn:
    """Ends this process as the table above says. `with_others`: all ranks call this together; `at_once`: no call of MPI is made."""
    for stream in (sys.stdout, sys.stderr):
        # Whoever reads it may be gone.
        with contextlib.suppress(OSError):
            stream.flush()
    mpi = None if at_once else initialized_mpi()
    is_regular = with_others or (status == 0 and not at_once)
    if mpi and with_others:
        # By then each rank has printed and written all that it has to.
        mpi.COMM_WORLD.Barrier()
    if mpi and is_regular:
        mpi.Finalize()
    if is_regular:
        # PyDLL keeps the GIL, which some handlers of PyTorch need.
        ctypes.PyDLL(None).exit(status)
    if mpi and UNDER_HYDRA and status != INTERRUPTED:
        if mpi.COMM_WORLD.rank:
            time.sleep(SECONDS_FOR_OTHERS)
        mpi.COMM_WORLD.Abort(status)
    os._exit(status)


def leave_failed(problem: BaseException, status: int, error: str, ranks: Ranks | None) -> NoReturn:
    """Reports a failure and leaves, with the other ranks where these meet in MPI and have not met yet. `ranks` is None if not known."""
    if isinstance(problem, AnotherRankFailed):
        leave(status, with_others=True)
    if ranks and status != INTERRUPTED:
        failure = Failure(ranks.rank, socket.gethostname(), status, error)
        if meeting.is_awaited(ranks) and (status_of_all := _tell_others(failure, ranks)) is not None:
            leave(status_of_all, with_others=True)
        write_for_torchrun(str(failure))
    is_first = ranks is None or ranks.rank == 0
    if status == 2 and not is_first:
        # All ranks usually have the same user error, and rank 0 reports it, unless the launcher ends it because another rank exited.
        time.sleep(SECONDS_FOR_OTHERS)
    if is_first or status in (1, 2):
        where = f"rank {ranks.rank}: " if ranks and (status == 1 or not is_first) else ""
        report(f"{where}{error}")
    leave(status)


def _tell_others(failure: Failure, ranks: Ranks) -> int | None:
    """Tells the ranks that come to MPI why this one fails. Returns the status of the first that failed; None if these are not one MPI."""
    text = str(failure) if failure.rank else failure.error

    def leave_alone(_: Late) -> None:
        report(text)
        leave(failure.status, at_once=True)

    # Usually all have the same user error, which one reports; where they do not come soon, this one does not wait for them.
    timer = threading.Timer(SECONDS_FOR_OTHERS, report, [text])
    timer.start()
    try:
        failures = meeting.meet(ranks, failure, leave_alone)
    except UserError:
        return None
    finally:
        timer.cancel()
    if all(earlier.error != failure.error for earlier in failures if earlier.rank < failure.rank):
        report(text)
    return failures[0].status


@functools.cache
def report(error: str) -> None:
    """Prints an error message, once, and sends it."""
    print(f"error: {error}", file=sys.stderr, flush=True)
    messages.send(messages.RankEnded(shortened(error.partition("\n")[0], MAX_ERROR)))


def leave_import(kind: type[BaseException], problem: BaseException, frames: TracebackType | None) -> NoReturn:
    """Ends a rank whose program could not be imported; an excepthook of Python."""
    sys.__excepthook__(kind, problem, frames)
    leave_failed(problem, 1, f"{kind.__name__}: {problem}", from_environment())


def leave_hung(problem: Hang | Late) -> NoReturn:
    """Reports a hang of this rank, with the stack of its main thread, or that others have not joined it, and leaves."""
    if isinstance(problem, Hang):
        messages.send(problem)
    report(str(problem))
    if isinstance(problem, Hang):
        stack = sys._current_frames().get(threading.main_thread().ident or 0)
        print("".join(traceback.format_stack(stack)[-NUM_FRAMES:]), end="", file=sys.stderr, flush=True)
    time.sleep(SECONDS_FOR_OTHERS)
    leave(1, at_once=True)


def leave_by_signal(number: signal.Signals, rank: int) -> NoReturn:
    """Leaves for a signal that this process got."""
    error = f"rank {rank}: ended by {number.name}"
    if number in OF_ALL:
        with contextlib.suppress(OSError):
            messages.send(messages.RankEnded(error, is_cause=False))
    else:
        report(error)
        if rank:
            time.sleep(SECONDS_FOR_OTHERS)
    leave(128 + number, at_once=True)


def on_signal(end: Callable[[signal.Signals], object]) -> None:
    """Calls `end` with the first of the ENDING signals that this process gets and does not ignore.

    A thread of its own does, also while the main thread waits in a library.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: None)

    def wait() -> None:
        while (number := os.read(read_end, 1)[0]) not in ENDING:
            pass
        end(signal.Signals(number))

    threading.Thread(target=wait, daemon=True).start()


def initialized_mpi() -> ModuleType | None:
    """Returns mpi4py's module MPI where it is loaded and MPI is initialized and not finalized; else None."""
    module = sys.modules.get("mpi4py.MPI")
    return module if module and module.Is_initialized() and not module.Is_finalized() else None


def write_for_torchrun(error: str) -> None:
    """Writes the error of this worker for its agent and the other workers of the node; no effect without an agent."""
    if path := os.environ.get(TORCHRUN_ERROR_FILE):
        message = {"message": error, "extraInfo": {"timestamp": str(int(time.time()))}}
        try:
            Path(path).write_text(json.dumps({"message": message}))
        except OSError:
            return


def first_error_under_torchrun() -> str | None:
    """Reads the first error that a worker of this node has written; None where there is none."""
    if not (path := os.environ.get(TORCHRUN_ERROR_FILE)):
        return None
    for written in sorted(Path(path).parents[1].glob("*/error.json"), key=lambda written: written.stat().st_mtime):
        try:
            return json.loads(written.read_text())["message"]["message"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def describe_failure(problem: BaseException, position: Position | None) -> tuple[int, str]:
    """Gives the exit status and a message of one line for an exception, and for the position of the rank where it is known.

    It prints the traceback of a failure that is neither a RunError nor out of memory. Exit status 1: failed; 2: invalid arguments, data or
    launch; 130: interrupted.
    """
    if isinstance(problem, UserError):
        return 2, str(problem)
    if isinstance(problem, RunError):
        return 1, str(problem)
    if isinstance(problem, AnotherRankFailed):
        (failure,) = problem.args
        return failure.status, str(failure)
    if isinstance(problem, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    message = describe_exhausted(problem)
    if message is None:
        traceback.print_exc()
        message = f"{type(problem).__name__}: {problem}"
    return 1, f"{position}: {message}" if position else message


def describe_exhausted(problem: BaseException) -> str | None:
    """Describes in one line, with what its library says, an exception of exhausted memory or a full disk; returns None for any other."""
    if isinstance(problem, OSError) and problem.filename and problem.errno in NO_ROOM:
        return f"{problem.filename} was not written: {problem.strerror}"
    text = " ".join(str(problem).split())
    is_exhausted = isinstance(problem, MemoryError) or getattr(problem, "errno", None) == errno.ENOMEM
    if not is_exhausted and not OUT_OF_MEMORY.search(text):
        return None
    memory = "GPU memory" if re.search("CUDA|GPU", text, re.IGNORECASE) else "memory"
    return f"out of {memory}{text and f' ({shortened(text, 200)})'}; {machine.LESS_MEMORY}"

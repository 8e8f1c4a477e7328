"""End of a rank's process: exit status, one-line error message, and an exit that the launcher takes for what it is."""

import ctypes
import os
import signal
import socket
import sys
import threading
import time
import traceback
from types import ModuleType, TracebackType
from typing import NoReturn

from common.errors import RunError, UserError
from common.process import agent_errors, gpus, meeting, out_of_memory, watchdog
from common.process.meeting import HYDRA_ONLY, Failure
from common.process.messages import Hang, Place
from common.process.ranks import Ranks, from_environment
from common.process.watchdog import Late, Watchdog

SECONDS_FOR_RANK_0 = 2.0
INTERRUPTED = 130


def describe_failure(problem: BaseException, place: Place | str | None) -> tuple[int, str]:
    """Gives the exit status and a message of one line for an exception, and for the place of the rank where it is known.

    It prints the traceback of a failure that is neither a RunError nor out of memory. Exit status 1: failed; 2: invalid arguments, data or
    launch; 130: interrupted.
    """
    if isinstance(problem, UserError):
        return 2, str(problem)
    if isinstance(problem, RunError):
        return 1, str(problem)
    if isinstance(problem, meeting.AnotherRankFailed):
        (failure,) = problem.args
        return failure.status, str(failure)
    if isinstance(problem, KeyboardInterrupt):
        return INTERRUPTED, f"interrupted{f' by {problem}' if str(problem) else ''}"
    if shared := gpus.describe_nccl_error(str(problem)):
        return 2, shared
    message = out_of_memory.describe(problem)
    if message is None:
        traceback.print_exc()
        message = f"{type(problem).__name__}: {problem}"
    return 1, f"{place}: {message}" if place else message


def report_failure(status: int, error: str, ranks: Ranks | None) -> None:
    """Prints the error message of this rank; only rank 0 reports an interruption. `ranks` is None where they are not known."""
    first = ranks is None or ranks.rank == 0
    if ranks and status != INTERRUPTED:
        agent_errors.write(str(Failure(ranks.rank, socket.gethostname(), status, error)))
    if status == 2 and not first:
        # All ranks usually have the same user error, and rank 0 reports it, unless the launcher ends it because another rank exited.
        time.sleep(SECONDS_FOR_RANK_0)
    if first or status in (1, 2):
        where = f"rank {ranks.rank}: " if ranks and (status == 1 or not first) else ""
        print(f"error: {where}{error}", file=sys.stderr, flush=True)


def leave_with_others(problem: BaseException, status: int, error: str, ranks: Ranks | None, dog: Watchdog | None) -> None:
    """Ends this process together with all other ranks, where they meet in MPI and one of them has failed before.

    It returns where the ranks do not meet in MPI, or have met already.
    """
    if isinstance(problem, meeting.AnotherRankFailed):
        meeting.leave_together(status)
    if ranks is None or status == INTERRUPTED or not meeting.is_awaited(ranks):
        return
    failure = Failure(ranks.rank, socket.gethostname(), status, error)

    def report() -> None:
        print(f"error: {failure if ranks.rank else error}", file=sys.stderr, flush=True)

    def give_up(_: Hang | Late) -> None:
        if timer.is_alive():
            report()
        os._exit(status)

    # Usually all have the same user error, which one reports; where they do not come soon, this rank does not wait for them.
    timer = threading.Timer(SECONDS_FOR_RANK_0, report)
    timer.start()
    dog = dog or watchdog.begin(0, ranks.rank)
    dog.on_hang = give_up
    try:
        failures = meeting.send_failure(ranks, failure)
    except UserError:
        # These ranks are not in one MPI.
        failures = None
    is_reported = not timer.is_alive()
    timer.cancel()
    if failures is None and is_reported:
        leave(status)
    if failures is None:
        return
    if not is_reported and all(earlier.error != error for earlier in failures if earlier.rank < ranks.rank):
        report()
    meeting.leave_together(failures[0].status)


def fail_import(kind: type[BaseException], problem: BaseException, frames: TracebackType | None) -> None:
    """Ends a rank whose program could not be imported; an excepthook of Python."""
    sys.__excepthook__(kind, problem, frames)
    ranks, error = from_environment(), f"{kind.__name__}: {problem}"
    leave_with_others(problem, 1, error, ranks, None)
    report_failure(1, error, ranks)
    leave(1)


def leave_by_signal(number: signal.Signals, is_rank_0: bool) -> None:
    """Ends this process for a signal that it got."""
    if number != signal.SIGTERM:
        print(f"error: ended by {number.name}", file=sys.stderr, flush=True)
        if not is_rank_0:
            # The launcher ends rank 0, which may be about to write that the run failed, when another one exits.
            time.sleep(SECONDS_FOR_RANK_0)
    os._exit(128 + number)


def leave(status: int) -> NoReturn:
    """Ends this process without finalizing the interpreter, which would abort some completed runs.

    Gloo's threads release their last tensors late and need the interpreter for it.

    After a success MPI is finalized and the exit handlers of the C library run: with one of them MPICH 5 notifies its launcher that the
    rank is done. A launcher without this notice kills the ranks that have not left yet. After a failure MPI is not finalized, since that
    would wait for ranks that wait for this one. Hydra gets a request to abort the run: after a mere exit it reports the ranks that it ends
    as killed.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    initialized = initialized_mpi()
    if status == 0:
        if initialized:
            initialized.Finalize()
        # PyDLL keeps the GIL, which some handlers of PyTorch need.
        ctypes.PyDLL(None).exit(0)
    if initialized and HYDRA_ONLY in os.environ and status != INTERRUPTED:
        if initialized.COMM_WORLD.rank:
            # The abort ends rank 0 too, which may be about to write that the run failed.
            time.sleep(SECONDS_FOR_RANK_0)
        initialized.COMM_WORLD.Abort(status)
    elif not initialized:
        meeting.abort_unjoined(status)
    os._exit(status)


def initialized_mpi() -> ModuleType | None:
    """Returns mpi4py's module MPI where it is loaded and MPI is initialized and not finalized; else None."""
    module = sys.modules.get("mpi4py.MPI")
    return module if module and module.Is_initialized() and not module.Is_finalized() else None

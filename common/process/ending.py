"""End of a rank's process: exit status, one-line error message, and exit without waiting for other ranks."""

import os
import sys
import time
import traceback

from common.errors import UserError
from common.process import gpus, out_of_memory

SECONDS_FOR_RANK_0 = 2.0


def describe_failure(problem, place):
    """(exit status, one-line message) for an exception and the place of the rank, if known. Prints the traceback of a failure
    that is not out of memory.

    Exit status 1: failed; 2: invalid arguments, data or launch; 130: interrupted.
    """
    if isinstance(problem, UserError):
        return 2, str(problem)
    if isinstance(problem, KeyboardInterrupt):
        return 130, "interrupted"
    if shared := gpus.describe_nccl_error(str(problem)):
        return 2, shared
    message = out_of_memory.describe(problem)
    if message is None:
        traceback.print_exc()
        message = f"{type(problem).__name__}: {problem}"
    return 1, f"{place}: {message}" if place else message


def report_failure(status, error, ranks):
    """Prints the error message of this rank; only rank 0 reports an interruption. `ranks` may be None."""
    first = ranks is None or ranks.rank == 0
    if status == 2 and not first:
        # All ranks usually have the same user error, and rank 0 reports it, unless the launcher ends it because another rank exited.
        time.sleep(SECONDS_FOR_RANK_0)
    if first or status in (1, 2):
        where = f"rank {ranks.rank}: " if ranks and (status == 1 or not first) else ""
        print(f"error: {where}{error}", file=sys.stderr, flush=True)


def leave(status):
    """Ends this process immediately, without finalizing the interpreter.

    After a success only MPI is finalized. Finalizing the interpreter would abort some completed runs, because Gloo's threads
    release their last tensors late and need the interpreter for it. After a failure it would wait in MPI_Finalize for ranks
    that wait for this one; without it, the launcher ends all ranks.
    """
    if not status and "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        if MPI.Is_initialized() and not MPI.Is_finalized():
            MPI.Finalize()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

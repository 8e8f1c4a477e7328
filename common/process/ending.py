"""End of a rank's process: exit status, one-line error message, and an exit that the launcher takes for what it is."""

import ctypes
import os
import sys
import time
import traceback

from common.errors import RunError, UserError
from common.process import gpus, out_of_memory

SECONDS_FOR_RANK_0 = 2.0
INTERRUPTED = 130
# A variable that Hydra, the launcher of MPICH and Intel MPI, sets for its ranks, and no other launcher.
HYDRA_ONLY = "MPI_LOCALRANKID"


def describe_failure(problem, place):
    """(exit status, one-line message) for an exception and the place of the rank, if known. Prints the traceback of a failure
    that is neither a RunError nor out of memory.

    Exit status 1: failed; 2: invalid arguments, data or launch; 130: interrupted.
    """
    if isinstance(problem, UserError):
        return 2, str(problem)
    if isinstance(problem, RunError):
        return 1, str(problem)
    if isinstance(problem, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
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
    """Ends this process without finalizing the interpreter, which would abort some completed runs: Gloo's threads release their last
    tensors late and need the interpreter for it.

    After a success MPI is finalized and the exit handlers of the C library run: by one of them MPICH 5 tells its launcher that the rank
    is done. A launcher that is not told kills the ranks that have not left yet. After a failure MPI is not finalized, which would wait for
    ranks that wait for this one. Hydra is told to abort the run: after a mere exit it reports the ranks that it ends as killed.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    mpi = initialized_mpi()
    if status == 0:
        if mpi:
            mpi.Finalize()
        # PyDLL keeps the GIL, which some handlers of PyTorch need.
        ctypes.PyDLL(None).exit(0)
    if mpi and HYDRA_ONLY in os.environ and status != INTERRUPTED:
        if mpi.COMM_WORLD.rank:
            # The abort ends rank 0 too, which may be about to write that the run failed.
            time.sleep(SECONDS_FOR_RANK_0)
        mpi.COMM_WORLD.Abort(status)
    os._exit(status)


def initialized_mpi():
    """mpi4py's module MPI where it is loaded and MPI is initialized and not finalized; else None."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi if mpi and mpi.Is_initialized() and not mpi.Is_finalized() else None

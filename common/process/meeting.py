"""The ranks of a run meet in MPI, where each learns whether another one has failed before."""

import contextlib
import ctypes
import os
import time
from types import ModuleType
from typing import NamedTuple

from common.errors import UserError
from common.process import ranks as sources
from common.process import slurm, watchdog
from common.process.mpi import initialized, loaded, problem
from common.process.ranks import Ranks

# The sources of ranks that do not meet in MPI.
WITHOUT_MPI = (sources.TORCHRUN.name, sources.HOROVODRUN.name, Ranks().source)
# A variable that Hydra, the launcher of MPICH and Intel MPI, sets for its ranks, and no other launcher; and that of its pipe to a rank.
HYDRA_ONLY, HYDRA_PIPE = "MPI_LOCALRANKID", "PMI_FD"
SECONDS_FOR_OUTPUT = 0.2


class Failure(NamedTuple):
    """Why a rank does not train: its exit status, and its message."""

    rank: int
    host: str
    status: int
    error: str

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}: {self.error}"


class AnotherRankFailed(Exception):
    """Raised on the ranks that have not failed; its argument is the Failure of the first rank that has."""


def joined(ranks: Ranks) -> ModuleType:
    """Gives mpi4py's MPI after all ranks of the run have met in it; all call this.

    Raises UserError if MPI has a different number of ranks, and AnotherRankFailed where a rank has come with its Failure.
    """
    if (mpi := loaded()).Is_initialized():
        expect_size(ranks, mpi.COMM_WORLD.size, "MPI")
    elif failures := _meet(ranks, None):
        raise AnotherRankFailed(failures[0])
    return mpi


def _meet(ranks: Ranks, failure: Failure | None) -> list[Failure]:
    """Gathers the Failures with which ranks have come, by rank."""
    with watchdog.joining(lambda: "over MPI"):
        world = initialized().COMM_WORLD
        expect_size(ranks, world.size, "MPI")
        return list(filter(None, world.allgather(failure)))


def expect_size(ranks: Ranks, size: int, library: str) -> None:
    """Raises UserError if a library has a different number of ranks than the launcher started: each would train alone."""
    if size != ranks.size:
        raise UserError(
            f"{ranks.source} started {ranks.size} ranks, {library} sees {size}; "
            "start with the mpiexec of the MPI that Horovod was built with and mpi4py loads"
            + (f". {slurm.advice(os.environ.get(slurm.MPI_TYPE, 'none'))}" if "SLURM_STEP_ID" in os.environ else "")
        )


def is_awaited(ranks: Ranks) -> bool:
    """Decides whether the ranks of the run meet in MPI, and this one has not come yet."""
    meets_elsewhere = ranks.size == 1 or ranks.source in WITHOUT_MPI or "MASTER_ADDR" in os.environ
    return not meets_elsewhere and problem() is None and not loaded().Is_initialized()


def send_failure(ranks: Ranks, failure: Failure) -> list[Failure]:
    """Sends the failure of this rank to the ranks that wait for it in MPI. Returns the Failures of all ranks, by rank.

    Raises UserError if MPI has a different number of ranks.
    """
    return _meet(ranks, failure)


def leave_together(status: int) -> None:
    """Ends this process, as all ranks do at the same time, with the same status."""
    mpi = loaded()
    # By then each rank has printed and written all that it has to.
    mpi.COMM_WORLD.Barrier()
    mpi.Finalize()
    ctypes.PyDLL(None).exit(status)


def abort_unjoined(status: int) -> None:
    """Lets Hydra end the ranks of a run that this one has not joined; no effect under other launchers.

    Hydra does not take the end of a process that has never contacted it for a failure, and the other ranks would wait for it.
    """
    if HYDRA_ONLY in os.environ and HYDRA_PIPE in os.environ:
        pipe = int(os.environ[HYDRA_PIPE])
        with contextlib.suppress(OSError):
            os.write(pipe, b"cmd=init pmi_version=1 pmi_subversion=1\n")
            os.read(pipe, 1024)
            # Hydra kills at once, and what it has not read of the output is lost.
            time.sleep(SECONDS_FOR_OUTPUT)
            os.write(pipe, f"cmd=abort exitcode={status}\n".encode())

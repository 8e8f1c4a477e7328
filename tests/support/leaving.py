"""A rank that leaves as a run does: python -m tests.support.leaving SECONDS STATUS.

Ranks that completed leave evenly spread over SECONDS, rank 0 first. With a STATUS above 0 the last rank fails, and the others wait for it.
"""

import sys
import time

from common.ranks import ending
from common.ranks.launcher_variables import TORCHRUN, from_environment


def main(seconds, status):
    ranks = from_environment()
    is_last = ranks.rank == ranks.size - 1
    if ranks.source == TORCHRUN.name:
        wait = time.sleep
    else:
        from mpi4py import MPI

        MPI.COMM_WORLD.Barrier()
        wait = (lambda _: MPI.COMM_WORLD.Barrier()) if status else time.sleep
    if status and is_last:
        ending.leave(status)
    wait(seconds * ranks.rank / (ranks.size - 1))
    ending.leave(0)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))

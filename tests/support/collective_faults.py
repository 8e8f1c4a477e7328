"""A rank of python -m launch.collectives whose MPI has a fault: python -m tests.support.collective_faults FAULT [arguments].

wrong: on the last rank one element of every all-reduce is wrong. hang: rank 0 never comes to the all-reduces of 64 bytes.
"""

import sys
import time

from frameworks.shared.collectives import mpi
from launch.collectives import rank

FAULTY = ("all_reduce", True)
begin = mpi.begin


def with_fault(fault):
    def begun(name, ranks, host_suffix):
        library = begin(name, ranks, host_suffix)
        prepare = library.collectives[FAULTY]

        def faulty(own, received):
            prepared = prepare(own, received)

            def call():
                if fault == "hang" and ranks.rank == 0 and own.nbytes == 64:
                    time.sleep(600)
                prepared.call()
                if fault == "wrong" and ranks.rank == ranks.size - 1:
                    own[len(own) // 2] += 1

            return prepared._replace(call=call)

        library.collectives[FAULTY] = faulty
        return library

    return begun


if __name__ == "__main__":
    mpi.begin = with_fault(sys.argv.pop(1))
    rank.main("collective_faults", "")

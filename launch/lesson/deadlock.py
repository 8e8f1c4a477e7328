"""Two stages of a hand-written pipeline exchange, under the watchdog, in one of three orders of the calls.

mpiexec -n 2 python -m launch.lesson.deadlock ORDER BYTES
"""

import sys
from typing import TYPE_CHECKING

import numpy as np

from common.ranks import ending, watchdog
from common.ranks.launcher_variables import from_environment
from common.ranks.messages import Position
from launch.lesson import running

if TYPE_CHECKING:
    from mpi4py import MPI

NUM_MICROBATCHES = 4
WATCHDOG_SECONDS = 5.0
MAX_BYTES = 1e9


def sends_first(pipeline: "MPI.Comm", sent: np.ndarray, received: np.ndarray, peer: int) -> None:
    """Both stages send, then both receive: the activations of the next micro-batch, and the gradient of the last one."""
    pipeline.Send(sent, peer)
    pipeline.Recv(received, peer)


def in_turn(pipeline: "MPI.Comm", sent: np.ndarray, received: np.ndarray, peer: int) -> None:
    """One stage sends while the other receives."""
    calls = [lambda: pipeline.Send(sent, peer), lambda: pipeline.Recv(received, peer)]
    for call in calls if pipeline.rank == 0 else reversed(calls):
        call()


def together(pipeline: "MPI.Comm", sent: np.ndarray, received: np.ndarray, peer: int) -> None:
    """Both calls start before either is waited for, as in torch.distributed.batch_isend_irecv."""
    requests = pipeline.Irecv(received, peer), pipeline.Isend(sent, peer)
    type(requests[0]).Waitall(requests)


ORDERS = {function.__name__: function for function in (sends_first, in_turn, together)}


def main(order: str, size: str) -> None:
    """Exchanges some micro-batches with the other rank, and prints the number and size of the exchanges."""
    from mpi4py import MPI

    ranks = from_environment()
    sent, received = np.full(int(size), ranks.rank, np.uint8), np.empty(int(size), np.uint8)
    guard = watchdog.Watchdog(WATCHDOG_SECONDS, ranks.rank, ending.leave_hung)
    for number in range(NUM_MICROBATCHES):
        guard.begin(Position(1, number + 1, NUM_MICROBATCHES))
        ORDERS[order](MPI.COMM_WORLD, sent, received, 1 - ranks.rank)
        assert (received == 1 - ranks.rank).all()
    print(f"rank {ranks.rank} has exchanged {NUM_MICROBATCHES} times {size} bytes", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [order, size] if order in ORDERS and size.isdecimal() and float(size) < MAX_BYTES and from_environment().size == 2:
            main(order, size)
        case _:
            running.refuse(f"start two ranks: .venv/bin/mpiexec -n 2 .venv/bin/python -m launch.lesson.deadlock {'|'.join(ORDERS)} BYTES")

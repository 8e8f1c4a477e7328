"""MPI's collectives on arrays in main memory, with mpi4py."""

import numpy as np

from common.process.meeting import joined
from common.process.ranks import Ranks
from frameworks.shared.collectives.library import Library, Prepare, Prepared


def begin(name: str, ranks: Ranks, host_suffix: str) -> Library:
    """Initializes MPI. Raises UserError if it has a different number of ranks."""
    MPI = joined(ranks)
    world = MPI.COMM_WORLD
    following, previous = (ranks.rank + 1) % ranks.size, (ranks.rank - 1) % ranks.size

    def summed(values: np.ndarray) -> np.ndarray:
        total = np.empty_like(values)
        world.Allreduce(values, total)
        return total

    def all_gather_in_place(sent: np.ndarray, received: np.ndarray) -> Prepared:
        received[ranks.rank * len(sent) :][: len(sent)] = sent
        return Prepared(lambda: world.Allgather(MPI.IN_PLACE, received), received)

    def reduce_scatter_in_place(sent: np.ndarray, received: np.ndarray) -> Prepared:
        return Prepared(lambda: world.Reduce_scatter_block(MPI.IN_PLACE, sent), sent[: len(received)])

    def send_recv(sent: np.ndarray, received: np.ndarray) -> Prepared:
        return Prepared(lambda: world.Sendrecv(sent, following, 0, received, previous, 0), received)

    collectives: dict[tuple[str, bool], Prepare] = {
        ("all_reduce", False): lambda sent, received: Prepared(lambda: world.Allreduce(sent, received), received),
        ("all_reduce", True): lambda sent, _: Prepared(lambda: world.Allreduce(MPI.IN_PLACE, sent), sent),
        ("all_gather", False): lambda sent, received: Prepared(lambda: world.Allgather(sent, received), received),
        ("all_gather", True): all_gather_in_place,
        ("reduce_scatter", False): lambda sent, received: Prepared(lambda: world.Reduce_scatter_block(sent, received), received),
        ("reduce_scatter", True): reduce_scatter_in_place,
        ("broadcast", True): lambda sent, _: Prepared(lambda: world.Bcast(sent), sent),
        ("all_to_all", False): lambda sent, received: Prepared(lambda: world.Alltoall(sent, received), received),
        ("send_recv", False): send_recv,
        ("barrier", False): lambda _, received: Prepared(world.Barrier, received),
    }
    versions = {"mpi": MPI.Get_library_version().split("\n")[0].strip("\0 ")}
    return Library(ranks, summed, collectives, end=lambda: None, versions=versions)

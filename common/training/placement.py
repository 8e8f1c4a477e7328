"""The cores on which the threads of all ranks run, compared after the warm-up, when every library has started its threads."""

import os
from collections.abc import Collection, Iterable, Set

import numpy as np

from common import config
from common.config import Settings
from common.errors import RunError
from common.process import binding, machine
from common.process.ranks import by_rank, node_number
from common.trainer import Trainer

# So many cores make a number that float64 holds.
CORES_PER_NUMBER = 48
# The longest label of a host name has 63.
HOST_BYTES = 64


def of_ranks(trainer: Trainer, settings: Settings, cores: Set[int]) -> tuple[list[list[int]], bool]:
    """Returns the cores of each rank, and whether ranks are oversubscribed. All ranks call this, each with its own cores.

    Raises RunError, on every rank, where a rank's threads are not on its cores, or compute in another number than --threads.
    """
    cores_of_ranks = expect_on_cores(trainer, cores, settings.bind)
    expect_num_threads(trainer, settings.threads)
    of_node = on_this_node(trainer, cores_of_ranks)
    crowded = oversubscribed(of_node, config.cores_per_rank(settings), binding.core_of_threads(), machine.quota_cores())
    return cores_of_ranks, bool(by_rank(trainer, crowded).any())


def expect_on_cores(trainer: Trainer, cores: Set[int], is_bound: bool) -> list[list[int]]:
    """Returns the cores that the threads of each rank run on. All ranks call this.

    Raises RunError, on every rank, where a thread of a rank that is bound may run elsewhere. Those that libraries start for their
    communication inherit the binding of the rank, under every backend. Without a binding of ours it is the launcher's, whatever that is.
    """
    cores = cores if is_bound else os.sched_getaffinity(0)
    assigned = gathered(trainer, cores)
    actual = gathered(trainer, (is_bound and misplaced(cores)) or cores)
    for rank, (cores_of_rank, cores_of_threads) in enumerate(zip(assigned, actual, strict=True)):
        if cores_of_rank != cores_of_threads:
            raise RunError(
                f"rank {rank} has {cores_text(cores_of_rank)}, and a thread of it may run on {cores_text(cores_of_threads)}: a library or "
                "the launcher has changed its binding; turn that off, or leave the binding to it with --no-bind"
            )
    return actual


def expect_num_threads(trainer: Trainer, num_threads: int) -> None:
    """Raises RunError, on every rank, where a framework computes with another number of threads on one of them. All ranks call this."""
    computing = trainer.describe_device().num_threads
    counts = by_rank(trainer, num_threads if computing is None else computing)
    if wrong := np.flatnonzero(counts != num_threads).tolist():
        raise RunError(f"rank {wrong[0]} computes with {counts[wrong[0]]:.0f} threads, and --threads is {num_threads}")


def misplaced(cores: Set[int]) -> Set[int] | None:
    """Returns the cores of the first thread of this process that may run on others; None where there is none.

    The main thread has all of the cores, and others may have some of them.
    """
    main = os.getpid()
    for thread in sorted(map(int, os.listdir("/proc/self/task")), key=lambda thread: thread != main):
        try:
            allowed = os.sched_getaffinity(thread)
        except ProcessLookupError:
            continue
        if not allowed <= cores or (thread == main and allowed != cores):
            return allowed
    return None


def gathered(trainer: Trainer, cores: Collection[int]) -> list[list[int]]:
    """All-gathers the cores that each rank gives, sorted. All ranks call this."""
    num_numbers = int(by_rank(trainer, max(cores) // CORES_PER_NUMBER + 1).max())
    parts = [[1 << core % CORES_PER_NUMBER for core in cores if core // CORES_PER_NUMBER == part] for part in range(num_numbers)]
    numbers = [by_rank(trainer, sum(bits)).astype(np.int64).tolist() for bits in parts]
    return [
        [part * CORES_PER_NUMBER + bit for part, mask in enumerate(masks) for bit in range(CORES_PER_NUMBER) if mask >> bit & 1]
        for masks in zip(*numbers, strict=True)
    ]


def on_this_node(trainer: Trainer, values: list[list[int]]) -> list[list[int]]:
    """Returns the values of the ranks of this node. All ranks call this."""
    places = by_rank(trainer, node_number())
    return [value for value, place in zip(values, places, strict=True) if place == places[trainer.ranks.rank]]


def oversubscribed(
    cores_of_ranks: Iterable[Collection[int]], cores_per_rank: int, core_of: dict[int, int], quota_cores: float | None
) -> bool:
    """Returns whether ranks of a node need more physical cores than those that they run on, or than a CPU quota."""
    physical = [frozenset(core_of.get(core, core) for core in cores) for cores in cores_of_ranks]
    if quota_cores is not None and len(physical) * cores_per_rank > quota_cores:
        return True
    # Of each rank, with those beside it that have no other cores, and of all together.
    available = {*physical, frozenset().union(*physical)}
    return any(sum(cores <= shared for cores in physical) * cores_per_rank > len(shared) for shared in available)


def host_by_rank(trainer: Trainer, host: str) -> list[str]:
    """All-gathers the host name of each rank, up to HOST_BYTES of it. All ranks call this."""
    size, rank = trainer.ranks.size, trainer.ranks.rank
    letters = np.zeros((size, HOST_BYTES))
    data = host.encode()[:HOST_BYTES]
    letters[rank, : len(data)] = list(data)
    gathered_letters = trainer.sum(letters.ravel()).reshape(size, HOST_BYTES).astype(np.uint8)
    return [bytes(row[row > 0]).decode(errors="replace") for row in gathered_letters]


def cores_text(cores: Collection[int]) -> str:
    """Names cores in words."""
    return f"core{'s' * (len(cores) != 1)} {', '.join(map(str, cores))}"

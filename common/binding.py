"""Cores: which ones a rank is bound to, and whether ranks have to share them."""

import os


def cores_for(allowed, local_rank, threads):
    """The cores of one rank: `threads` of the `allowed` ones, the next ones for each local rank, round and round.

    Where the launcher has left this rank no more cores than it needs, it gets just those.
    """
    allowed = sorted(allowed)
    return {allowed[(local_rank * threads + i) % len(allowed)] for i in range(threads)}


def oversubscribed(allowed, local_size, threads, total):
    """Whether the ranks of a node want more cores than it gives them."""
    bound_by_launcher = len(allowed) <= threads and len(allowed) < total
    return local_size * threads > (total if bound_by_launcher else len(allowed))


def bind(cores):
    """Binds all threads that this process has, and so all it will start, to the cores."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)

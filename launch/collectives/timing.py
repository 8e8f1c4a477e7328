"""How long a call takes that all ranks make together, as nccl-tests time it: a loop of calls, its time by call, the mean over ranks."""

import math
import time

import numpy as np

from common.trainer import by_rank

# nccl-tests' -w. Of calls that take longer than SLOW_SECONDS the first one is enough.
NUM_WARMUPS = 5
SLOW_SECONDS = 0.1
REPEAT_SECONDS = 0.02
MAX_ITERATIONS = 1000


def measure(library, call, num_repeats, heartbeat):
    """(seconds of a call in each repeat, number of calls that a repeat is the mean of) of a call that all ranks make.

    That number follows the first calls, and is the same on every rank. `heartbeat()` is called after each loop of calls.
    """
    seconds = _loop(library, call, 1, heartbeat)
    if seconds < SLOW_SECONDS:
        seconds = _loop(library, call, NUM_WARMUPS, heartbeat)
    num_iterations = iterations(seconds)
    return [_loop(library, call, num_iterations, heartbeat) for _ in range(num_repeats)], num_iterations


def iterations(seconds):
    """The number of calls of this length in a repeat."""
    return min(max(math.ceil(REPEAT_SECONDS / seconds), 1), MAX_ITERATIONS) if seconds > 0 else MAX_ITERATIONS


def _loop(library, call, num_calls, heartbeat):
    """Seconds of a call, from a loop that all ranks begin together: the mean over ranks, and so the same on every rank."""
    library.sum(np.zeros(1))
    begun = time.perf_counter()
    for _ in range(num_calls):
        call()
    library.synchronize()
    seconds = (time.perf_counter() - begun) / num_calls
    heartbeat()
    return float(by_rank(library, seconds).mean())

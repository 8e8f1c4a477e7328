"""Reading ahead of the training: the same for every backend, format and library."""

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor


def read_ahead(read, items, num_workers, num_ahead, cores=None):
    """Yields read(item) for each of the items, in their order.

    With workers, threads that are bound to the `cores`, up to `num_ahead` items are read before they are asked for. They are threads since
    arrays pass from a thread without a copy, reading and hashing leave Python's lock, and processes must not fork under MPI. What `read`
    raises is raised where its item is asked for. Where the iteration ends early, what is being read is finished in the background.
    """
    if not num_workers:
        yield from map(read, items)
        return
    pool = ThreadPoolExecutor(num_workers, "reader", lambda: cores and os.sched_setaffinity(0, cores))
    try:
        pending = deque()
        for item in items:
            pending.append(pool.submit(read, item))
            if len(pending) > num_ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        # Not waiting: Ctrl-C must not wait for a file system that hangs.
        pool.shutdown(wait=False, cancel_futures=True)


def cores_of_workers(num_threads, bind):
    """Returns the cores of the rank's reading threads: those beyond the ones it computes on; None without such."""
    cores = sorted(os.sched_getaffinity(0))
    return set(cores[num_threads:]) if bind and len(cores) > num_threads else None

"""Reading ahead of the training: the same for every backend, format and library."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def read_ahead(
    read: Callable[[Item], Result], items: Iterable[Item], num_workers: int, num_ahead: int, cores: set[int] | None = None
) -> Iterator[Result]:
    """Yields read(item) for each of the items, in their order.

    With workers, which are threads bound to the `cores`, up to `num_ahead` items are read before they are asked for. They are threads since
    arrays pass from a thread without a copy, reading and hashing release Python's lock, and processes must not fork under MPI. An exception
    of `read` is raised where its item is asked for. Where the iteration ends early, items that are being read are finished in the
    background.
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
        # The C library keeps freed memory for each thread, and gives it to the next thread only if this one has ended.
        pool.shutdown()
    finally:
        # Not waiting: Ctrl-C must not wait for a file system that hangs.
        pool.shutdown(wait=False, cancel_futures=True)


def cores_of_workers(num_threads: int, bind: bool) -> set[int] | None:
    """Returns the cores of the rank's reading threads: those on which it does not compute, or None if there are none."""
    cores = sorted(os.sched_getaffinity(0))
    return set(cores[num_threads:]) if bind and len(cores) > num_threads else None

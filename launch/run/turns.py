"""Runs side by side in time: as many as fit into memory take turns on the same cores, so that all meet the machine in the same state.

A run is a generator as runner.run_job is: it yields the process IDs of its ranks when its turn has ended, and returns its record.
"""

import random
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeVar

import psutil

from common.ranks import gpus, machine

Result = TypeVar("Result")
# A run, which yields the process IDs of its ranks.
Run = Generator[list[int], None, Result]
# The next run may need more than the largest so far, and all grow a little in training.
MARGIN = 1.5


# Of the node or a GPU: the bytes that each run has for itself, and the bytes that are available.
Memory = tuple[list[int], float]


def side_by_side(
    starts: Iterable[Callable[[], Run[Result]]], another_fits: Callable[[list[list[int]]], bool], on_end: Callable[[int, Result], object]
) -> None:
    """Lets runs take turns until all have ended; calls on_end(number, record) for each, in the order in which they end.

    `starts`: functions that start a run. A run is made ready, up to its first turn, before the next one is started. Where
    `another_fits(process IDs of the runs so far)` is false, the remaining runs follow when those before have ended. Every round of turns
    has an order drawn at random, so that no run always follows the same one. An exception ends all runs before it is passed on.
    """
    waiting = deque(enumerate(starts))
    while waiting:
        active: dict[int, Run[Result]] = {}
        pids_by_run: list[list[int]] = []
        try:
            while waiting and (not active or another_fits(pids_by_run)):
                number, start = waiting.popleft()
                active[number] = start()
                pids_by_run.append(_take_turn(number, active, on_end))
            while active:
                for number in random.sample(list(active), len(active)):
                    _take_turn(number, active, on_end)
        finally:
            for run in active.values():
                run.close()


def alone(run: Run[Result]) -> Result:
    """Returns the record of a run that has the machine for itself."""
    records: list[Result] = []
    side_by_side([lambda: run], lambda _: False, lambda _, record: records.append(record))
    return records[0]


def _take_turn(number: int, active: dict[int, Run[Result]], on_end: Callable[[int, Result], object]) -> list[int]:
    """Lets a run take a turn and returns the process IDs of its ranks; a run that has ended is not active any more, and has none."""
    try:
        return next(active[number])
    except StopIteration as end:
        del active[number]
        on_end(number, end.value)
        return []
    except BaseException:
        del active[number]
        raise


def fits_beside(pids_by_run: Sequence[Sequence[int]]) -> bool:
    """Returns whether a run as large as the largest of these, which are ready to train, fits beside them."""
    memories = [memory_of_node(pids_by_run), *memory_of_gpus(pids_by_run)]
    return all(max(bytes_by_run, default=0) * MARGIN <= available_bytes for bytes_by_run, available_bytes in memories)


def memory_of_node(pids_by_run: Iterable[Iterable[int]]) -> Memory:
    """Returns the memory of this node. Of a run it counts what each of its processes shares with no other process."""
    return [sum(map(unshared_bytes, pids)) for pids in pids_by_run], machine.available_bytes()


def unshared_bytes(pid: int) -> int:
    """Returns the memory that a process shares with no other; 0 for a process that has ended."""
    try:
        return psutil.Process(pid).memory_full_info().uss
    except psutil.Error:
        return 0


def memory_of_gpus(pids_by_run: Sequence[Iterable[int]]) -> list[Memory]:
    """Returns the memory of each GPU of this node; empty where that is not known."""
    return [
        ([sum(bytes_by_pid.get(pid, 0) for pid in pids) for pids in pids_by_run], free_bytes)
        for (_, bytes_by_pid), free_bytes in zip(gpus.processes(), gpus.free_bytes(), strict=False)
    ]

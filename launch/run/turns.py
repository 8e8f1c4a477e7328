"""Runs side by side in time: they take turns on the same cores, so that all meet the machine in the same state.

A run is a generator as runner.run_job is: it yields the process IDs of its ranks when its turn has ended, and returns its record.
"""

import random
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

Result = TypeVar("Result")
# A run, which yields the process IDs of its ranks.
Run = Generator[list[int], None, Result]


def side_by_side(
    starts: Iterable[Callable[[], Run[Result]]], has_room: Callable[[list[list[int]]], bool], on_end: Callable[[int, Result], object]
) -> None:
    """Lets runs take turns until all have ended; calls on_end(number, record) for each, in the order in which they end.

    `starts`: functions that start a run. A run is made ready, up to its first turn, before the next one is started. Where
    `has_room(process IDs of the runs so far)` is false, the remaining runs follow when those before have ended. Every round of turns has an
    order drawn at random, so that no run always follows the same one. An exception ends all runs before it is passed on.
    """
    waiting = deque(enumerate(starts))
    while waiting:
        active: dict[int, Run[Result]] = {}
        pids_by_run: list[list[int]] = []
        try:
            while waiting and (not active or has_room(pids_by_run)):
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

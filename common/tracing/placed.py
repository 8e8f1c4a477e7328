"""Events with their rank and track in a merged trace, and their sources."""

from collections.abc import Iterable
from typing import NamedTuple


class Placed(NamedTuple):
    """An event with its rank, kind of track and track name. The event needs no pid and no tid."""

    rank: int
    kind: str
    track: str
    event: dict


class Source(NamedTuple):
    """The events of one file, spans as X, and its clock: `ts` 0 is at origin_nanoseconds since the epoch.

    `rank`: the rank on whose node the clock runs. `starts_at`: the smallest ts. `error_microseconds`: the error bound against that
    clock, None where unknown; `note` explains it.
    """

    name: str
    rank: int
    origin_nanoseconds: int
    starts_at: float
    error_microseconds: float | None
    note: str
    events: Iterable[Placed]


class Lanes:
    """Assigns overlapping spans to as few tracks as needed. Spans arrive in the order of their ends."""

    def __init__(self):
        self.ends = []

    def lane_for(self, start, end):
        """Returns the number, from 0, of a lane that is free at this span's start."""
        for number, busy_until in enumerate(self.ends):
            if busy_until <= start:
                self.ends[number] = end
                return number
        self.ends.append(end)
        return len(self.ends) - 1

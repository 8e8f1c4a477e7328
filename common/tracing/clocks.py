"""Clock offsets between ranks, from collectives in which both took part. Pure.

No rank leaves a collective before every rank has entered it. Each collective therefore bounds the difference of two clocks
from both sides, as messages do in Cristian's algorithm (Distributed Computing 3, 1989).
"""

from typing import NamedTuple


class Offset(NamedTuple):
    """How far a clock is ahead of rank 0's, and the error bound; microseconds, None where unknown."""

    ahead: float
    error: float | None


SAME = Offset(0.0, 0.0)


def offset(collectives, collectives_of_rank_0):
    """Returns the Offset of a rank's clock, from (entered, left) of each collective on its own clock and on rank 0's, in nanoseconds.

    The offset is 0 where the bounds allow it, as on one node. Where the bounds contradict each other, since a clock jumped, the error
    is None.
    """
    if not collectives or len(collectives) != len(collectives_of_rank_0):
        return Offset(0.0, None)
    pairs = list(zip(collectives, collectives_of_rank_0, strict=True))
    highest = min(here[1] - on_rank_0[0] for here, on_rank_0 in pairs) / 1000
    lowest = max(here[0] - on_rank_0[1] for here, on_rank_0 in pairs) / 1000
    if lowest > highest:
        return Offset(0.0, None)
    ahead = 0.0 if lowest <= 0 <= highest else (lowest + highest) / 2
    return Offset(ahead, max(ahead - lowest, highest - ahead))


def error_microseconds(seen, before, after):
    """Returns the error bound of a profiler's clock: moments `seen` on it lie between `before` and `after` on the host's clock.

    All are dicts with the same keys, in microseconds; None where they have no key in common.
    """
    common = seen.keys() & before.keys() & after.keys()
    if not common:
        return None
    highest = min(seen[key] - before[key] for key in common)
    lowest = max(seen[key] - after[key] for key in common)
    return max(abs(highest), abs(lowest))

"""Clocks: how far apart those of two ranks can be, from collectives that both took part in. Pure.

No rank leaves a collective before every rank has entered it. So what one rank's clock shows as it leaves is later than
what the other's showed as it entered, up to the difference of the clocks: each collective bounds that difference from
both sides, as messages do in Cristian's algorithm (Distributed Computing 3, 1989).
"""

from typing import NamedTuple


class Offset(NamedTuple):
    """How far a clock is ahead of rank 0's, and by how much this may be wrong; microseconds, None where not known."""

    ahead: float
    error: float | None


SAME = Offset(0.0, 0.0)


def offset(meetings, meetings_of_rank_0):
    """The Offset of a rank's clock, from (entered, left) of each collective on its own clock and on rank 0's, in nanoseconds.

    Within what the collectives allow the clocks are taken to be the same, as they are on one node. Where clocks jumped,
    so that the bounds contradict each other, the error is None.
    """
    if not meetings or len(meetings) != len(meetings_of_rank_0):
        return Offset(0.0, None)
    pairs = list(zip(meetings, meetings_of_rank_0, strict=True))
    highest = min(mine[1] - theirs[0] for mine, theirs in pairs) / 1000
    lowest = max(mine[0] - theirs[1] for mine, theirs in pairs) / 1000
    if lowest > highest:
        return Offset(0.0, None)
    ahead = 0.0 if lowest <= 0 <= highest else (lowest + highest) / 2
    return Offset(ahead, max(ahead - lowest, highest - ahead))


def error_microseconds(seen, before, after):
    """How far a profiler's clock may be from the host's: `seen` on the first, moments that lie between `before` and `after` on the second.

    All are dicts by the same keys, in microseconds; None where they have none in common.
    """
    common = seen.keys() & before.keys() & after.keys()
    if not common:
        return None
    highest = min(seen[key] - before[key] for key in common)
    lowest = max(seen[key] - after[key] for key in common)
    return max(abs(highest), abs(lowest))

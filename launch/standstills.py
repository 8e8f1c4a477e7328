"""Which rank a run that stood still waited for, from what its ranks told of themselves."""


def told(standstills, num_ranks):
    """The Standstills that the ranks of a run told, in one line that names the ranks that held it up.

    A rank that said nothing can no longer speak: it was stopped, or hangs with Python's lock held. Where all spoke, those
    that are behind the others hold them up; where all are at one place, that is told.
    """
    said = {one.rank: one for one in standstills}
    first, last = min(one.place for one in standstills), max(one.place for one in standstills)
    silent = sorted(set(range(num_ranks)) - set(said))
    behind = sorted(rank for rank, one in said.items() if one.place < last)
    waited = f"{standstills[0].seconds:.0f} s (--stall-limit)"
    if silent:
        return f"{named(silent)} stood still and said nothing, as a stopped process does; the others waited {first} for {waited}"
    if behind:
        return f"{named(behind)} stood still {first} for {waited}; the others waited {last}"
    who = "all ranks" if num_ranks > 1 else "the only rank"
    return f"{who} stood still {first} for {waited}"


def named(ranks):
    """Ranks in words, at most eight of them."""
    shown = ", ".join(str(rank) for rank in ranks[:8]) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"

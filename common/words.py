"""Numbers and lists as words."""

from collections.abc import Sequence


def ranks_of(number: int) -> str:
    """Returns `1 rank` or `2 ranks`."""
    return f"{number} rank" if number == 1 else f"{number} ranks"


def listed(names: Sequence[str]) -> str:
    """Returns `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)

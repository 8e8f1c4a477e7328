"""What is asked of a forecast, and what cannot be asked. Pure."""

import math
from typing import NamedTuple

from common.errors import UserError


class Wish(NamedTuple):
    """What is asked for. `network`: between nodes, of network.py, None for that of the records; `algorithm`: None for the
    library's own; `price`: of an hour of a core or GPU."""

    ranks: tuple[int, ...]
    network: tuple | None = None
    ranks_per_node: int | None = None
    algorithm: str | None = None
    price: float | None = None


def sizes_of(text, option="--ranks"):
    """Numbers of ranks from text such as 16,64,1024. Raises UserError for what is none."""
    try:
        return tuple(dict.fromkeys(int(one) for one in text.split(",") if one.strip()))
    except ValueError:
        raise UserError(f"{option} is {text}; give whole numbers separated by commas, such as 16,64,1024") from None


def check(wish, option="--ranks"):
    """Raises UserError for the first invalid wish. `option`: of the command line, which gives the numbers of ranks."""
    if not wish.ranks:
        raise UserError(f"{option} is empty; give numbers of ranks, such as 16,64,1024")
    for size in wish.ranks:
        if size < 1:
            raise UserError(f"{option} has {size}; a number of ranks is a whole number of at least 1")
    if wish.ranks_per_node is not None and wish.ranks_per_node < 1:
        raise UserError(f"--ranks-per-node is {wish.ranks_per_node}; it must be an integer, at least 1")
    if wish.price is not None and not 0 <= wish.price < math.inf:
        raise UserError(f"--price is {wish.price:g}; the price of an hour is at least 0")

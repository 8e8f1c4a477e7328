"""What is asked of a forecast. Pure."""

import math
from collections.abc import Callable
from typing import NamedTuple

from common.command_line import Bounds
from common.errors import UserError
from launch.forecast.network.hockney import Regime

PRICE = Bounds(at_least=0, below=math.inf)


class Wish(NamedTuple):
    """What is asked for. `network(transport, algorithm)`: the Regimes of a message between nodes, None for those of the records;
    `algorithm`: None for the library's own; `price`: of an hour of a core or GPU."""

    ranks: tuple[int, ...]
    network: Callable[[str, str], tuple[Regime, ...]] | None = None
    ranks_per_node: int | None = None
    algorithm: str | None = None
    price: float | None = None


def sizes_of(text, option="--ranks"):
    """Numbers of ranks from text such as 16,64,1024. Raises UserError for what is none, and for an empty text."""
    try:
        sizes = tuple(dict.fromkeys(int(number) for number in text.split(",") if number.strip()))
    except ValueError:
        raise UserError(f"{option} is {text}; give whole numbers separated by commas, such as 16,64,1024") from None
    if not sizes:
        raise UserError(f"{option} is empty; give numbers of ranks, such as 16,64,1024")
    if too_small := [size for size in sizes if size < 1]:
        raise UserError(f"{option} has {too_small[0]}; a number of ranks is a whole number of at least 1")
    return sizes

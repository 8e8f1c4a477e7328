"""What is asked of a forecast, and what cannot be asked. Pure."""

import math
from dataclasses import dataclass
from typing import Annotated

from common import command_line
from common.command_line import FROM_1, Bounds
from common.errors import UserError


@dataclass(frozen=True)
class Wish:
    """What is asked for. `network`: between nodes, of network.py, None for that of the records; `algorithm`: None for the
    library's own; `price`: of an hour of a core or GPU."""

    ranks: tuple[int, ...]
    network: tuple | None = None
    ranks_per_node: Annotated[int | None, FROM_1] = None
    algorithm: str | None = None
    price: Annotated[float | None, Bounds(at_least=0, below=math.inf)] = None


def sizes_of(text, option="--ranks"):
    """Numbers of ranks from text such as 16,64,1024. Raises UserError for what is none."""
    try:
        return tuple(dict.fromkeys(int(number) for number in text.split(",") if number.strip()))
    except ValueError:
        raise UserError(f"{option} is {text}; give whole numbers separated by commas, such as 16,64,1024") from None


def check(wish, option="--ranks"):
    """Raises UserError for the first invalid wish. `option`: of the command line, which gives the numbers of ranks."""
    if not wish.ranks:
        raise UserError(f"{option} is empty; give numbers of ranks, such as 16,64,1024")
    for size in wish.ranks:
        if size < 1:
            raise UserError(f"{option} has {size}; a number of ranks is a whole number of at least 1")
    command_line.check(wish)

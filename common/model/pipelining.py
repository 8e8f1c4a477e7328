"""How a model is cut into the stages of a pipeline, of which each rank computes one."""

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from common.model.description import Model, parts_of


class Stage(NamedTuple):
    """Consecutive parts of a model, from `start` to before `end`."""

    start: int
    end: int


@functools.cache
def stages_of(model: Model, num_ranks: int) -> list[Stage]:
    """Returns the stages of a model in a pipeline of that many ranks, one for each rank."""
    bounds = cut([(part.flops, part.num_parameters) for part in parts_of(model)], num_ranks)
    return [Stage(*bound) for bound in itertools.pairwise(bounds)]


def cut(costs: Sequence[tuple[int, int]], num_stages: int) -> tuple[int, ...]:
    """Returns the bounds (0, …, number of parts) of contiguous stages, whose most expensive stage is as cheap as possible.

    `costs` are the FLOPs and the number of parameters of each part. A stage costs the FLOPs of its parts. This balances the backward pass
    too, which takes about twice the FLOPs of the forward pass in every part. Where the FLOPs are equal, the parameters decide. Where these
    are equal too, the first stages are short.
    """
    sums = np.cumsum([(0, 0), *costs], axis=0, dtype=float)
    # The costs of the stage from each part, by row, to before each later part, by column.
    stage_costs = sums - sums[:, None]
    allowed = np.tri(len(sums), k=-1, dtype=bool).T
    for kind in (0, 1):
        cost = np.where(allowed, stage_costs[..., kind], np.inf)
        # The most expensive stage of the best cut of the parts before each: into one stage, then into one more each time.
        highest = cost[0]
        for _ in range(num_stages - 1):
            highest = np.maximum(highest[:, None], cost).min(axis=0)
        allowed &= cost <= highest[-1]
    # Whether the parts from each part on can be cut into no stage, into one, and so on.
    can_be_cut = [np.arange(len(sums)) == len(costs)]
    for _ in range(num_stages):
        can_be_cut.append((allowed & can_be_cut[-1]).any(axis=1))
    bounds = [0]
    for num_left in reversed(range(num_stages)):
        bounds.append(int(np.argmax(allowed[bounds[-1]] & can_be_cut[num_left])))
    return tuple(bounds)


def num_under_way(schedule: str, rank: int, num_ranks: int, num_microbatches: int) -> int:
    """Returns the maximum number of forward passes of a micro-batch through a stage whose backward pass a rank has yet to do.

    1F1B is that of Narayanan et al. 2021, arXiv:2104.04473, section 2.2.
    """
    return min(num_microbatches, num_ranks - rank) if schedule == "1f1b" else num_microbatches

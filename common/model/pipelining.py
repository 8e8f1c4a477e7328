"""How a model is cut into the stages of a pipeline, and which rank computes each stage."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from common.model.description import Model, parts_of


class Stage(NamedTuple):
    """Consecutive parts of a model, from `start` to before `end`, computed by the rank of that number in the pipeline."""

    rank: int
    start: int
    end: int


class Schedule(NamedTuple):
    """The order in which micro-batches pass the stages.

    With two stages per rank, rank r of p has stages r and p + r, or, if `v_shaped`, r and 2p - 1 - r. With `one_microbatch` a step has one
    micro-batch, whatever the settings.
    """

    stages_per_rank: int = 1
    v_shaped: bool = False
    one_microbatch: bool = False


SCHEDULES = {
    "1f1b": Schedule(),
    "gpipe": Schedule(),
    "interleaved": Schedule(stages_per_rank=2),
    "zero_bubble": Schedule(stages_per_rank=2, v_shaped=True),
    "naive": Schedule(one_microbatch=True),
}


@functools.cache
def stages_of(model: Model, schedule: str, num_ranks: int) -> list[Stage]:
    """Returns the stages of a model under a schedule of that name, in a pipeline of that many ranks."""
    ranks = list(range(num_ranks))
    ranks = ranks + ranks[::-1] if SCHEDULES[schedule].v_shaped else ranks * SCHEDULES[schedule].stages_per_rank
    bounds = cut([(part.flops, part.num_parameters) for part in parts_of(model)], len(ranks))
    return [Stage(rank, *bound) for rank, bound in zip(ranks, itertools.pairwise(bounds), strict=True)]


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

    1F1B is that of Narayanan et al. 2021, arXiv:2104.04473, section 2.2, and interleaved is PyTorch 2.13's. Zero-bubble in the shape of a V
    has the same number on every rank, 2p (Qi et al. 2024, arXiv:2401.10241, section 6), unless there are few micro-batches.
    """
    stages = SCHEDULES[schedule].stages_per_rank
    if schedule == "1f1b":
        return min(num_microbatches, num_ranks - rank)
    if schedule == "interleaved":
        each_round = num_microbatches // max(1, num_microbatches // num_ranks)
        return min(stages * num_microbatches, (stages - 1) * each_round + 2 * (num_ranks - 1 - rank) + 1)
    if schedule == "zero_bubble":
        # The first stage of the rank, and its second one.
        return min(num_microbatches, 2 * num_ranks - 1 - rank) + min(num_microbatches, rank + 1)
    return num_microbatches


def bubble_fraction(schedule: str, num_ranks: int, num_microbatches: int) -> float:
    """Returns the fraction of a step in which a rank waits, in theory: with equal stages, and exchanges that take no time.

    GPipe and 1F1B: (p - 1) / (m + p - 1) (Huang et al. 2019, arXiv:1811.06965, section 2.3); with v stages per rank, interleaved:
    (p - 1) / (vm + p - 1) (Narayanan et al. 2021, arXiv:2104.04473, section 2.2, as a part of the whole step). Zero-bubble schedules
    aim at 0 (Qi et al. 2024, arXiv:2401.10241, section 6).
    """
    stages_per_rank, v_shaped, _ = SCHEDULES[schedule]
    return 0.0 if v_shaped else (num_ranks - 1) / (stages_per_rank * num_microbatches + num_ranks - 1)

"""How a model is cut into the stages of a pipeline, which rank computes each stage, and why a model cannot be cut."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from common.model.description import Model, parts_of

if TYPE_CHECKING:
    from common.config import Settings


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


def microbatches_of(settings: Settings) -> int:
    """Returns the number of micro-batches in a step."""
    return 1 if SCHEDULES[settings.pipeline_schedule].one_microbatch else settings.microbatches


def problem(name: str, settings: Settings, model: Model, num_ranks: int, local_batch: int) -> str | None:
    """Returns why a pipeline of that many ranks cannot train a model with steps of `local_batch` samples, or None if it can."""
    if any(part.output_shape is None for part in parts_of(model)):
        return f"{name} does not train {settings.workload}, whose model has no parts for stages; leave it out"
    num_parts, num_stages = len(parts_of(model)), num_ranks * SCHEDULES[settings.pipeline_schedule].stages_per_rank
    if num_stages > num_parts:
        return f"{name} cuts {settings.workload} into at most {num_parts} stages, and {num_ranks} ranks have {num_stages}; choose fewer"
    return _problem_of_microbatches(name, settings, num_ranks, num_stages, local_batch)


def _problem_of_microbatches(name: str, settings: Settings, num_ranks: int, num_stages: int, local_batch: int) -> str | None:
    """Returns why the micro-batches of the settings cannot pass the stages, or None if they can."""
    if settings.accumulate > 1:
        return f"{name} has its own micro-batches; choose --microbatches, and leave --accumulate out"
    schedule, num = settings.pipeline_schedule, microbatches_of(settings)
    if local_batch % num:
        return f"{name}: {num} micro-batches do not divide the batch of {local_batch} samples; choose other --microbatches"
    if schedule == "1f1b" and num < num_stages:
        return f"{name} takes at least as many micro-batches as its {num_stages} stages, and {num} are fewer; raise --microbatches"
    if schedule == "interleaved" and num % max(1, num // num_ranks):
        return f"{name} passes {num_ranks} micro-batches at a time, and {num} do not fit; make --microbatches a multiple of {num_ranks}"
    return None


def bubble_fraction(schedule: str, num_ranks: int, num_microbatches: int) -> float:
    """Returns the fraction of a step in which a rank waits, in theory: with equal stages, and exchanges that take no time.

    GPipe and 1F1B: (p - 1) / (m + p - 1) (Huang et al. 2019, arXiv:1811.06965, section 2.3); with v stages per rank, interleaved:
    (p - 1) / (vm + p - 1) (Narayanan et al. 2021, arXiv:2104.04473, section 2.2, as a part of the whole step). Zero-bubble schedules
    aim at 0 (Qi et al. 2024, arXiv:2401.10241, section 6).
    """
    stages_per_rank, v_shaped, _ = SCHEDULES[schedule]
    return 0.0 if v_shaped else (num_ranks - 1) / (stages_per_rank * num_microbatches + num_ranks - 1)

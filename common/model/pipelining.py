"""How a model is cut into the stages of a pipeline, which rank computes each, and what cannot be cut. Pure."""

import functools
import itertools
from typing import NamedTuple

import numpy as np

from common.model.families import parts_of


class Stage(NamedTuple):
    """Consecutive parts of a model, from `start` to before `end`, computed by the rank of that number in the pipeline."""

    rank: int
    start: int
    end: int


class Schedule(NamedTuple):
    """The order in which micro-batches pass the stages.

    `stages_per_rank`: with two, rank r of p has stages r and p + r, or, if `v_shaped`, r and 2p - 1 - r. `one_microbatch`: a step has
    one, whatever the settings.
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


# Typed, since tuples of the same sizes are equal.
@functools.lru_cache(typed=True)
def stages_of(model, schedule, num_ranks):
    """The Stages of a model under a schedule, by its name, in a pipeline of that many ranks."""
    ranks = list(range(num_ranks))
    ranks = ranks + ranks[::-1] if SCHEDULES[schedule].v_shaped else ranks * SCHEDULES[schedule].stages_per_rank
    bounds = cut([(part.flops, part.num_parameters) for part in parts_of(model)], len(ranks))
    return [Stage(rank, *bound) for rank, bound in zip(ranks, itertools.pairwise(bounds), strict=True)]


def cut(costs, num_stages):
    """The bounds (0, …, number of parts) of contiguous stages whose most expensive one is as cheap as can be.

    `costs`: (FLOPs, parameters) of the parts. A stage costs the FLOPs of its parts; a backward pass takes about twice those of its
    forward pass in every part, so these balance both. Where the FLOPs are equal, the parameters decide; then the first
    stages are short.
    """
    sums = np.cumsum([(0, 0), *costs], axis=0, dtype=float)
    # Of the stage from each part, by row, to before each later part, by column.
    stage_costs = sums - sums[:, None]
    allowed = np.tri(len(sums), k=-1, dtype=bool).T
    for kind in (0, 1):
        cost = np.where(allowed, stage_costs[..., kind], np.inf)
        # The most expensive stage of the best cut of the parts before each: into one stage, then into one more each time.
        highest = cost[0]
        for _ in range(num_stages - 1):
            highest = np.maximum(highest[:, None], cost).min(axis=0)
        allowed &= cost <= highest[-1]
    # Whether the parts from each on can be cut into no stage, into one, and so on.
    can_be_cut = [np.arange(len(sums)) == len(costs)]
    for _ in range(num_stages):
        can_be_cut.append((allowed & can_be_cut[-1]).any(axis=1))
    bounds = [0]
    for num_left in reversed(range(num_stages)):
        bounds.append(int(np.argmax(allowed[bounds[-1]] & can_be_cut[num_left])))
    return tuple(bounds)


def num_under_way(schedule, rank, num_ranks, num):
    """The most forward passes of a micro-batch through a stage whose backward pass a rank has not done, of `num` micro-batches.

    1F1B: Narayanan et al. 2021, arXiv:2104.04473, section 2.2; interleaved: as PyTorch 2.13 warms up; zero-bubble in the shape of a V:
    on every rank as many, 2p (Qi et al. 2024, arXiv:2401.10241, section 6), unless there are few micro-batches.
    """
    stages = SCHEDULES[schedule].stages_per_rank
    if schedule == "1f1b":
        return min(num, num_ranks - rank)
    if schedule == "interleaved":
        each_round = num // max(1, num // num_ranks)
        return min(stages * num, (stages - 1) * each_round + 2 * (num_ranks - 1 - rank) + 1)
    if schedule == "zero_bubble":
        # Of the first stage, and of the last one.
        return min(num, 2 * num_ranks - 1 - rank) + min(num, rank + 1)
    return num


def num_microbatches(settings):
    """The number of micro-batches in a step."""
    return 1 if SCHEDULES[settings.pipeline_schedule].one_microbatch else settings.microbatches


def problem(name, settings, model, num_ranks, local_batch):
    """Why a pipeline of that many ranks cannot train a model with these settings; None if it can. `local_batch`: samples of a step."""
    if any(part.output_shape is None for part in parts_of(model)):
        return f"{name} does not train {settings.workload}, whose model has no parts for stages; leave it out"
    num_parts, num_stages = len(parts_of(model)), num_ranks * SCHEDULES[settings.pipeline_schedule].stages_per_rank
    if num_stages > num_parts:
        return f"{name} cuts {settings.workload} into at most {num_parts} stages, and {num_ranks} ranks have {num_stages}; choose fewer"
    return _problem_of_microbatches(name, settings, num_ranks, num_stages, local_batch)


def _problem_of_microbatches(name, settings, num_ranks, num_stages, local_batch):
    """Why the micro-batches of the settings do not pass the stages; None if they do."""
    if settings.accumulate > 1:
        return f"{name} has its own micro-batches; choose --microbatches, and leave --accumulate out"
    schedule, num = settings.pipeline_schedule, num_microbatches(settings)
    if local_batch % num:
        return f"{name}: {num} micro-batches do not divide the batch of {local_batch} samples; choose other --microbatches"
    if schedule == "1f1b" and num < num_stages:
        return f"{name} takes at least as many micro-batches as its {num_stages} stages, and {num} are fewer; raise --microbatches"
    if schedule == "interleaved" and num % max(1, num // num_ranks):
        return f"{name} passes {num_ranks} micro-batches at a time, and {num} do not fit; make --microbatches a multiple of {num_ranks}"
    return None


def bubble_fraction(schedule, num_ranks, num):
    """The part of a step in which a rank waits, in theory: with equal stages, and exchanges that take no time. `num`: micro-batches.

    GPipe and 1F1B: (p - 1) / (m + p - 1) (Huang et al. 2019, arXiv:1811.06965, section 2.3); with v stages per rank, interleaved:
    (p - 1) / (vm + p - 1) (Narayanan et al. 2021, arXiv:2104.04473, section 2.2, as a part of the whole step). Zero-bubble schedules
    aim at 0 (Qi et al. 2024, arXiv:2401.10241, section 6).
    """
    stages_per_rank, v_shaped, _ = SCHEDULES[schedule]
    return 0.0 if v_shaped else (num_ranks - 1) / (stages_per_rank * num + num_ranks - 1)

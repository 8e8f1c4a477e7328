"""What the observations of all ranks say about the training of a script: pure functions of what tandem_probe.py wrote, one for each check.

A check returns what is right, raises Wrong with the evidence, or Unseen with the reason.
"""

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from launch.auditing.observations import Event, Numbers, Rank, are_averaged_later, are_close, differences, is_whole, length, together

RIGHT, WRONG, UNSEEN = "right", "wrong", "could not be seen"
# Relative, of what all ranks start from.
EQUAL = 1e-6
# Relative. Gradients in 16 bits, and compressed ones, are rounded by less; those of other samples differ by more.
GRADIENT_TOLERANCE = 0.02
# Of what training has changed: an average that has not begun is rounded by less.
STALE = 1e-3
# Of the samples of a rank: the padding of a sampler is less, and what is not divided is more.
LEAST_SHARED, MOST_SHARED = 0.1, 0.98
# A scaler starts too large and skips a few steps.
NUM_SKIPPED = 8


class Wrong(Exception):
    pass


class Unseen(Exception):
    pass


class Verdict(NamedTuple):
    check: str
    verdict: str
    reason: str


def judge(processes: Iterable[list[Event]]) -> list[Verdict]:
    """The verdict of each check on the events of all processes."""
    trained = [Rank(events) for events in processes if any(event["event"] in ("step", "end", "failed") for event in events)]
    by_number = {rank.number: rank for rank in sorted(trained, key=lambda rank: len(rank.steps))}
    ranks = [by_number[number] for number in sorted(by_number)]
    return [Verdict(name, *verdict(name, check, ranks)) for name, check in CHECKS.items()]


def verdict(name: str, check: Callable[[list[Rank]], str], ranks: list[Rank]) -> tuple[str, str]:
    try:
        if not ranks:
            raise Unseen("no process with this environment computed gradients with PyTorch 2.5 or newer")
        for rank in ranks:
            if rank.failures:
                raise Unseen(f"the probe failed on rank {rank.number}: {rank.failures[0]['error']}")
        if len(ranks) < ranks[0].world_size:
            raise Unseen(f"{len(ranks)} of {ranks[0].world_size} ranks were seen")
        if len(ranks) == 1 and name in ("start", "replicas", "random"):
            raise Unseen("there is one rank")
        if name not in ("parameters", "state") and not all(rank.steps for rank in ranks):
            raise Unseen("no optimizer took a step")
        return RIGHT, check(ranks)
    except Wrong as evidence:
        return WRONG, str(evidence)
    except Unseen as reason:
        return UNSEEN, str(reason)


def start(ranks: list[Rank]) -> str:
    whole = [name for name in ranks[0].start if is_whole(name, ranks)]
    first = ranks[0]
    for rank in ranks:
        pairs = [(f"parameter {name}", rank.start.get(name), first.start[name]) for name in whole]
        pairs += [(f"buffer {name}", numbers, first.buffers.get(name)) for name, numbers in rank.buffers.items()]
        for name, numbers, of_first in pairs:
            if numbers and of_first and not are_close(numbers, of_first, EQUAL):
                raise Wrong(f"the {name} is another one on rank {rank.number} than on rank {first.number} before step 1")
    if not whole:
        raise Unseen("all parameters are divided over the ranks")
    return f"{len(whole)} parameters and {len(first.buffers)} buffers are equal on {len(ranks)} ranks before step 1"


GRADIENTS = {
    "carried": "{} still has the gradient of the step before, which was not set to zero",
    "clipped": "the gradient of {} is clipped on each rank before it is averaged",
    "alone": "the gradient of {} is the rank's alone, not the mean of the ranks",
    "summed": "the gradient of {} is the sum of the ranks, not their mean",
    "divided": "the gradient of {} is divided by the number of ranks twice",
}


def gradients(ranks: list[Rank]) -> str:
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for steps in together(ranks):
        for name in steps[0]["gradients"]:
            if all(name in step["gradients"] for step in steps):
                kinds[kind_of_gradient(name, steps, is_whole(name, ranks))].append(f"{name} at step {steps[0]['number']}")
    if kinds["alone"] and are_averaged_later(differences(ranks)):
        raise Unseen("the ranks average their parameters, not their gradients")
    for kind, text in GRADIENTS.items():
        if kinds[kind]:
            num_gradients = sum(map(len, kinds.values()))
            raise Wrong(text.format(kinds[kind][0]) + f" ({len(kinds[kind])} of {num_gradients} gradients)")
    if len(ranks) == 1:
        raise Unseen("there is one rank")
    if len(kinds["other"]) > len(kinds["averaged"]):
        raise Unseen(f"that of {kinds['other'][0]} is no multiple of the mean of the ranks, as after compression")
    if not kinds["averaged"]:
        raise Unseen("they are divided over the ranks, or a library applies them by tensors of its own")
    return f"{len(kinds['averaged'])} gradients are the mean of {len(ranks)} ranks"


def kind_of_gradient(name: str, steps: Sequence[Event], has_all: bool) -> str:
    """How the gradient that is applied comes from those that the ranks computed."""
    of_ranks = [step["gradients"][name] for step in steps]
    applied, alone, before_clipping, before, _ = map(list, zip(*of_ranks, strict=True))
    # Each part that arrived on a rank was added to what is not zero.
    if steps[0]["number"] > 1 and all(of_rank and all(numbers and any(numbers) for numbers in of_rank) for of_rank in before):
        return "carried"
    if not has_all or not all(applied) or not all(alone):
        return "unseen"
    average = mean(alone)
    if len(steps) == 1 or not length(average) or not all(map(length, applied)):
        return "averaged"
    for kind, gradients in (("alone", applied), ("clipped", before_clipping)):
        pairs = zip(gradients, alone, strict=True)
        if any(numbers and multiple(numbers, average) is None and multiple(numbers, of_rank) for numbers, of_rank in pairs):
            return kind
    is_clipped = all(before_clipping)
    factors = [multiple(numbers, average) for numbers in (before_clipping if is_clipped else applied)]
    factor = factors[0]
    if factor is None or None in factors:
        return "other"
    scaled = factor * steps[0]["scale"]
    # What the loss was multiplied by belongs to it: a sum over the ranks of losses that are divided by their number is a mean.
    whole = factor * math.fsum(map(loss_factor, steps)) / len(steps)
    is_known = all(num_terms for step in steps for _, num_terms, _ in step["losses"] or [(None, None, None)])
    # A division may be for clipping, or for several micro-batches.
    is_alone = len(before[0]) == 1 and not is_clipped
    kinds = {
        "averaged": is_near(whole, 1),
        "summed": is_near(scaled, len(steps)),
        "divided": is_alone and is_near(whole if is_known else scaled, 1 / len(steps)),
    }
    return next((kind for kind, applies in kinds.items() if applies), "averaged")


def mean(of_ranks: list[Numbers]) -> Numbers:
    return [math.fsum(numbers) / len(of_ranks) for numbers in zip(*of_ranks, strict=True)]


def multiple(numbers: Numbers, average: Numbers) -> float | None:
    """By which positive factor numbers are an average; None if they are no multiple of it."""
    factor = sum(map(operator.mul, numbers, average)) / (length(average) ** 2 or 1)
    return factor if factor > 0 and are_close(numbers, [factor * number for number in average], GRADIENT_TOLERANCE) else None


def is_near(factor: float, expected: float) -> bool:
    return abs(factor / expected - 1) <= GRADIENT_TOLERANCE


def loss_factor(step: Event) -> float:
    """By what the mean of a loss was multiplied in a step, over its micro-batches, as far as that is known."""
    return math.fsum(factor for _, _, factor in step["losses"])


def replicas(ranks: list[Rank]) -> str:
    for name, (_, size) in ranks[0].sizes.items():
        num_elements = sum(rank.sizes[name][0] for rank in ranks if name in rank.sizes)
        if num_elements < size:
            raise Wrong(f"the ranks have {num_elements} of the {size} elements of {name}")
    if different := differences(ranks):
        step, name = min((step, name) for name, places in different.items() for step, place in enumerate(places, 1) if place)
        if are_averaged_later(different):
            raise Unseen(f"the ranks differ after step {step} and are equal after a later one, as where they average parameters")
        number = ranks[different[name][step - 1]].number
        raise Wrong(f"after step {step} the parameter {name} is another one on rank {number} than on rank {ranks[0].number}")
    num_whole = sum(is_whole(name, ranks) for name in ranks[0].sizes)
    if not num_whole:
        return f"the shards of {len(ranks[0].sizes)} parameters cover them"
    return f"{num_whole} parameters are equal on {len(ranks)} ranks before each of {len(together(ranks))} steps"


def samples(ranks: list[Rank]) -> str:
    epochs = [[loader_pass for loader_pass in rank.passes if loader_pass["indices"]] for rank in ranks]
    for rank, of_rank in zip(ranks, epochs, strict=True):
        for earlier, later in pairwise(of_rank):
            if is_repeated(earlier, later):
                order = ", ".join(map(str, earlier["indices"][:6]))
                raise Wrong(f"two epochs of rank {rank.number} have the samples in the same order: {order} …")
    if len(ranks) == 1:
        raise Unseen("there is one rank")
    first = [of_rank[0] for of_rank in epochs if of_rank]
    if any(len(set(loader_pass["indices"])) < MOST_SHARED * len(loader_pass["indices"]) for loader_pass in first):
        raise Unseen("a rank draws a sample more than once in an epoch")
    by_model = list(zip(*(rank.end.get("samples", []) for rank in ranks), strict=False))
    by_content = max((part for of_ranks in by_model if (part := share(of_ranks)) is not None), default=None)
    by_index = share([loader_pass["indices"] for loader_pass in first]) if all(epochs) else None
    if by_content is None and by_index is None:
        raise Unseen("no sample was recognized")
    # Data sets of the ranks' own have equal indices too, and samples that are changed at random are never recognized.
    are_changed = len(epochs[0]) > 1 and all(len(set(of_ranks[0])) == len(of_ranks[0]) for of_ranks in by_model)
    part = max(by_content or 0.0, by_index or 0.0) if by_content is None or are_changed else by_content
    if part > LEAST_SHARED:
        raise Wrong(f"{part:.0%} of the samples of a rank are trained by another rank too")
    if by_index is None:
        return f"the ranks train different samples, {max(len(until_repeated(of_ranks[0])) for of_ranks in by_model)} and more of them"
    covered, size = {index for loader_pass in first for index in loader_pass["indices"]}, first[0]["size"] or 0
    are_complete = all(loader_pass["num_steps"] and not loader_pass["is_cut"] for loader_pass in first)
    if by_index <= LEAST_SHARED and are_complete and len(covered) < size / 1.5:
        raise Wrong(f"the ranks train {len(covered)} of {size} samples in an epoch")
    return f"the ranks train different samples, {len(covered)} in the first epoch"


def is_repeated(earlier: Event, later: Event) -> bool:
    """Whether an epoch has the order of the one before, though that is not the order of the data."""
    order = earlier["indices"]
    is_shuffled = any(after < before for before, after in pairwise(order))
    is_same = earlier["dataset"] == later["dataset"] and order == later["indices"][: len(order)]
    # A training that begins anew, as with another learning rate, may have the orders of the one before.
    return is_same and is_shuffled and len(order) > 8 and not later["begins"]


def share(of_ranks: Sequence[list[Any]]) -> float | None:
    """The largest part of a rank's samples, until one comes again, that another rank has; None if there are too few to tell."""
    sets = [until_repeated(samples) for samples in of_ranks]
    if min(map(len, sets)) < 8:
        return None
    return max(len(samples & others) / min(len(samples), len(others)) for samples, others in combinations(sets, 2))


def until_repeated(samples: list[Any]) -> set[Any]:
    seen: set[Any] = set()
    for sample in samples:
        if sample in seen:
            break
        seen.add(sample)
    return seen


def parameters(ranks: list[Rank]) -> str:
    for rank in ranks:
        if not rank.steps:
            raise Wrong(f"rank {rank.number} computed gradients {rank.end.get('num_backward', 1)} times, and no optimizer took a step")
        for step, later in pairwise(rank.steps):
            for name, (*_, requires_gradient) in step["gradients"].items():
                if not requires_gradient and step["values"][name] != later["values"][name]:
                    raise Wrong(f"{name} is frozen and changes on rank {rank.number}")
        in_optimizer = {name for step in rank.steps for name in step["gradients"]}
        for name in rank.end.get("with_gradient", []):
            if len(rank.values(name)) > 1 and rank.sizes[name][0] and not is_changed(name, rank) and moves(name, rank):
                reason = "" if name in in_optimizer else f", which is no tensor of the {rank.steps[0]['optimizer']}"
                raise Wrong(f"{name} gets gradients and does not change in {len(rank.steps)} steps on rank {rank.number}{reason}")
        if detached := [name for name in rank.end.get("without_gradient", []) if name in in_optimizer and is_whole(name, ranks)]:
            raise Wrong(f"{detached[0]} is computed and never gets a gradient on rank {rank.number}")
    num_changed = sum(is_changed(name, ranks[0]) for name in ranks[0].sizes)
    if not num_changed:
        raise Unseen("no parameter of a model was seen to change")
    return f"{num_changed} parameters get gradients and change"


def is_changed(name: str, rank: Rank) -> bool:
    return any(earlier != later for earlier, later in pairwise(rank.values(name)))


def moves(name: str, rank: Rank) -> bool:
    """Whether the gradients of a parameter are large enough to change it."""
    steps = [step for step in rank.steps if name in step["gradients"]]
    sizes = [length(numbers) * max(step["rates"], default=0.0) for step in steps for numbers in step["gradients"][name][:2] if numbers]
    return not steps or max(sizes, default=0.0) > 1e-6 * length(rank.values(name)[0])


def loss(ranks: list[Rank]) -> str:
    for steps in together(ranks):
        for rank, step in zip(ranks, steps, strict=True):
            if step["rates"] != steps[0]["rates"]:
                rates = f"{step['rates'][0]:g} on rank {rank.number} and {steps[0]['rates'][0]:g} on rank {ranks[0].number}"
                raise Wrong(f"at step {step['number']} the learning rate is {rates}")
    for rank in ranks:
        if len(rank.steps) >= 8 and not any(rate for step in rank.steps for rate in step["rates"]):
            raise Wrong(f"the learning rate is 0 in all {len(rank.steps)} steps of rank {rank.number}")
        for scheduler in rank.end.get("schedulers", []):
            num, num_steps = scheduler["num"], scheduler["num_steps"] - scheduler["num_before"]
            if num > 1.5 * (num_steps + 1):
                raise Wrong(f"{scheduler['kind']} steps {num} times in {num_steps} steps of its optimizer on rank {rank.number}")
    uneven = [terms for steps in together(ranks) if (terms := uneven_terms(steps))]
    if len(uneven) > 0.5 * len(ranks[0].steps):
        raise Wrong(f"{uneven[0]} terms of the loss, and not these weights")
    return f"the learning rates and the weights of the ranks are equal in {len(ranks[0].steps)} steps"


def uneven_terms(steps: Sequence[Event]) -> str | None:
    """The numbers of terms of the losses of a step, if each one has another weight; None if that is not known."""
    losses = [(terms, factor) for step in steps for _, terms, factor in step["losses"]]
    if not losses or not all(terms and factor for terms, factor in losses):
        return None
    place, num_batches, factor = f"at step {steps[0]['number']} the", steps[0]["num_batches"], loss_factor(steps[0])
    if num_batches == len(steps[0]["losses"]) > 1:
        if is_near(factor, num_batches) and is_applied_as_is(steps[0]):
            raise Wrong(f"{place} means of {num_batches} micro-batches are added, not averaged")
        if is_near(factor, 1 / num_batches):
            raise Wrong(f"{place} losses are divided by the number of micro-batches, {num_batches}, twice")
    weights = [factor / terms for terms, factor in losses]
    return f"{place} batches have {', '.join(f'{terms:g}' for terms, _ in losses)}" if max(weights) > 1.1 * min(weights) else None


def is_applied_as_is(step: Event) -> bool:
    """Whether no gradient was divided after it was computed."""
    pairs = [(applied, alone) for applied, alone, *_ in step["gradients"].values() if applied and alone]
    return any(length(applied) > 0.8 * length(alone) for applied, alone in pairs)


def evaluation(ranks: list[Rank]) -> str:
    parts: list[float] = []
    for rank in ranks:
        for kind, number in rank.end.get("inactive", {}).items():
            raise Wrong(f"{kind} is in evaluation mode in {number} steps of training on rank {rank.number}")
        # What a step of training computes without gradients, such as a teacher.
        if rank.evaluations and 2 * len(rank.evaluations) > rank.evaluations[-1]["steps"]:
            continue
        is_trained = any(event["is_trained"] for event in rank.evaluations)
        for event in rank.evaluations:
            place = f"after step {event['steps']} on rank {rank.number}"
            if any(event["layers"]):
                raise Wrong(f"{event['kind']} is evaluated {place} with layers in training mode")
            if is_stale(event, rank) and not is_trained:
                raise Wrong(f"the {event['kind']} that is evaluated {place} has the parameters of the start")
            parts_of_event = parts_trained(event, ranks)
            # A script may evaluate training samples too. Where others are all held out, some of them only have not been drawn so far.
            mixed = [part for part in parts_of_event if LEAST_SHARED < part < MOST_SHARED]
            if mixed and min(parts_of_event) > LEAST_SHARED:
                raise Wrong(f"{max(mixed):.0%} of the samples that are evaluated {place} are trained")
            parts += parts_of_event
        for event in rank.saved:
            if is_stale(event, rank):
                raise Wrong(f"what rank {rank.number} saves after step {event['steps']} has the parameters of the start")
    num_evaluations, num_saved = sum(len(rank.evaluations) for rank in ranks), sum(len(rank.saved) for rank in ranks)
    if not num_evaluations + num_saved:
        raise Unseen("no model was evaluated or saved")
    if parts and min(parts) >= MOST_SHARED:
        raise Unseen("all samples that are evaluated are trained, and none are held out")
    return f"{num_evaluations} evaluations and {num_saved} saved states have the trained model"


def parts_trained(event: Event, ranks: list[Rank]) -> list[float]:
    """Of the samples of each evaluated pass, or call, the part on which the model is trained."""
    models = [model for rank in ranks for model in enumerate(rank.end.get("samples", [])) if event["model"] in (None, model[0])]
    trained = {sample for _, samples in models for sample in samples}
    return [len(trained.intersection(samples)) / len(samples) for samples in event["samples"].values() if len(samples) >= 8]


def is_stale(event: Event, rank: Rank) -> bool:
    """Whether most parameters that are evaluated or saved are those of the start, of the ones that training has changed."""
    same = [(compared, now, rank.start[name]) for name, compared, now in event["parameters"] if name in rank.start]
    stale = [math.dist(compared, start) <= STALE * math.dist(now, start) for compared, now, start in same if now != start]
    return 2 * sum(stale) > len(stale)


def random(ranks: list[Rank]) -> str:
    if not all(rank.end.get("random") for rank in ranks):
        raise Unseen("no dropout was active in training")
    for first, second in combinations(ranks, 2):
        if first.end["random"] == second.end["random"]:
            raise Wrong(f"ranks {first.number} and {second.number} drop the same elements: their generators have the same state")
    return f"dropout differs between {len(ranks)} ranks"


def state(ranks: list[Rank]) -> str:
    for rank in ranks:
        not_finite = [step["number"] for step in rank.steps if not all(math.isfinite(value) for value, *_ in step["losses"])]
        if len(not_finite) > 2 or (rank.steps and rank.steps[-1]["number"] in not_finite):
            raise Wrong(f"the loss of rank {rank.number} is not finite at step {not_finite[0]}")
        for scheduler in rank.end.get("schedulers", []):
            if not scheduler["num_before"]:
                raise Wrong(f"{scheduler['kind']} steps before its optimizer on rank {rank.number}")
        if rank.end.get("num_skipped_last", 0) >= NUM_SKIPPED:
            raise Wrong(f"the scaler of rank {rank.number} skips the last {rank.end['num_skipped_last']} steps")
    if not ranks[0].steps:
        raise Unseen("no optimizer took a step")
    return f"the losses of {len(ranks[0].steps)} steps are finite"


CHECKS = {check.__name__: check for check in (start, gradients, replicas, samples, parameters, loss, evaluation, random, state)}

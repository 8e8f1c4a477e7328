"""What the observations of all ranks say about the training of a script: pure functions of what tandem_probe.py wrote, one for each check.

A check returns what is right, raises Wrong with the evidence, or Unseen with the reason.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from launch.auditing.observations import (
    Event,
    Rank,
    are_close,
    differences,
    is_near,
    is_whole,
    length,
    mean,
    minus,
    multiple,
    num_together,
    together,
)

RIGHT, WRONG, UNSEEN = "right", "wrong", "could not be seen"
# Relative, of what all ranks start from.
EQUAL = 1e-6
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
    trained = [Rank(events) for events in processes if any(event["event"] in ("trains", "failed") for event in events)]
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
        if len(ranks) == 1 and name in ("start", "gradients", "replicas", "random") and not is_carried(ranks):
            raise Unseen("there is one rank")
        if name not in ("parameters", "state") and not all(rank.steps for rank in ranks):
            raise Unseen("no optimizer took a step")
        return RIGHT, check(ranks)
    except Wrong as evidence:
        return WRONG, str(evidence)
    except Unseen as reason:
        return UNSEEN, str(reason)


def start(ranks: list[Rank]) -> str:
    first = [rank.steps[0]["values"] for rank in ranks]
    buffers = [{name: numbers for model in rank.models for name, numbers in model["buffers"].items()} for rank in ranks]
    names = [name for name in first[0] if is_whole(name, ranks)]
    for kind, of_ranks, compared in (("parameter", first, names), ("buffer", buffers, list(buffers[0]))):
        for name in compared:
            for rank, values in zip(ranks, of_ranks, strict=True):
                if name in values and not are_close(values[name], of_ranks[0][name], EQUAL):
                    raise Wrong(f"the {kind} {name} is another one on rank {rank.number} than on rank {ranks[0].number} before step 1")
    if not names:
        raise Unseen("all parameters are divided over the ranks")
    return f"{len(names)} parameters and {len(buffers[0])} buffers are equal on {len(ranks)} ranks before step 1"


def is_carried(ranks: list[Rank]) -> bool:
    return any(gradient[4] for rank in ranks for step in rank.steps[1:] for gradient in step["gradients"].values())


GRADIENTS = {
    "carried": "{} still has the gradient of the step before, which was not set to zero",
    "clipped": "the gradient of {} is clipped on each rank before it is averaged",
    "alone": "the gradient of {} is the rank's alone, not the mean of the ranks",
    "summed": "the gradient of {} is the sum of the ranks, not their mean",
    "divided": "the gradient of {} is divided by the number of ranks twice",
}


def gradients(ranks: list[Rank]) -> str:
    kinds: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for number, steps in together(ranks):
        for name in steps[0]["gradients"]:
            if all(name in step["gradients"] for step in steps):
                kind = kind_of_gradient([step["gradients"][name] for step in steps], steps, number, is_whole(name, ranks))
                kinds[kind] += 1
                examples.setdefault(kind, f"{name} at step {number}")
    num_steps = num_together(ranks)
    if kinds["alone"] and are_averaged_later(differences(ranks, range(num_steps)), ranks, num_steps):
        raise Unseen("the ranks average their parameters, not their gradients")
    for kind, text in GRADIENTS.items():
        if kinds[kind]:
            raise Wrong(text.format(examples[kind]) + f" ({kinds[kind]} of {kinds.total()} gradients)")
    if kinds["other"] > kinds["averaged"]:
        raise Unseen(f"that of {examples['other']} is no multiple of the mean of the ranks, as after compression")
    if not kinds["averaged"]:
        raise Unseen("they are divided over the ranks, or a library applies them by tensors of its own")
    return f"{kinds['averaged']} gradients are the mean of {len(ranks)} ranks"


def kind_of_gradient(of_ranks: list[list[Any]], steps: list[Event], number: int, has_all: bool) -> str:
    """How the gradient that is applied comes from those that the ranks computed."""
    applied, alone, before_clipping, num_arrived, carried, _ = map(list, zip(*of_ranks, strict=True))
    if all(carried) and number > 1:
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
    applied = before_clipping if all(before_clipping) else applied
    factors = [multiple(numbers, average) for numbers in applied]
    if None in factors:
        return "other"
    return kind_of_factor(factors[0] or 1.0, steps, num_arrived[0] == 1 and not all(before_clipping))


def kind_of_factor(factor: float, steps: list[Event], is_alone: bool) -> str:
    """What a multiple of the mean is; `is_alone`: it is neither clipped nor of several micro-batches, which a division could be for."""
    scaled, of_loss = factor * steps[0]["scale"], [loss_factor(step) for step in steps]
    # What the loss was multiplied by belongs to it: a sum over the ranks of losses that are divided by their number is a mean.
    whole = factor * math.fsum(of_loss) / len(steps)
    losses = [loss for step in steps for loss in step["losses"]]
    is_known = bool(losses) and all(num_terms for _, num_terms, _ in losses)
    if is_near(whole, 1):
        return "averaged"
    if is_near(scaled, len(steps)):
        return "summed"
    return "divided" if is_alone and is_near(whole if is_known else scaled, 1 / len(steps)) else "averaged"


def loss_factor(step: Event) -> float:
    """By what the mean of a loss was multiplied in a step, over its micro-batches, as far as that is known."""
    return math.fsum(factor for _, _, factor in step["losses"])


def are_averaged_later(different: list[tuple[int, str, int]], ranks: list[Rank], num_steps: int) -> bool:
    """Whether each parameter that differs is equal again before a later one of the steps."""
    places: defaultdict[str, set[int]] = defaultdict(set)
    for place, name, _ in different:
        places[name].add(place)
    last = {name: min(num_steps, *(len(rank.values(name)) for rank in ranks)) for name in places}
    return all(set(range(min(of_name), last[name])) - of_name for name, of_name in places.items())


def replicas(ranks: list[Rank]) -> str:
    whole = [name for name in ranks[0].sizes if is_whole(name, ranks)]
    for name, (_, size) in ranks[0].sizes.items():
        num_elements = sum(rank.sizes[name][0] for rank in ranks)
        if num_elements < size:
            raise Wrong(f"the ranks have {num_elements} of the {size} elements of {name}")
    num_steps = num_together(ranks)
    # After the last step that was watched, another that was not may have come.
    if different := differences(ranks, range(1, num_steps + (num_steps == len(ranks[0].steps)))):
        place, name, number = different[0]
        if are_averaged_later(different, ranks, num_steps):
            raise Unseen(
                f"the ranks differ after step {place} and are equal after a later one, as where they average parameters now and then"
            )
        raise Wrong(f"after step {place} the parameter {name} is another one on rank {number} than on rank {ranks[0].number}")
    if not whole:
        return f"the shards of {len(ranks[0].sizes)} parameters cover them"
    return f"{len(whole)} parameters are equal on {len(ranks)} ranks after each of {num_steps} steps"


def samples(ranks: list[Rank]) -> str:
    passes = [[loader_pass for loader_pass in rank.passes if loader_pass["trains"] and loader_pass["indices"]] for rank in ranks]
    for rank, of_rank in zip(ranks, passes, strict=True):
        if order := repeated_order(rank, of_rank):
            raise Wrong(f"two epochs of rank {rank.number} have the samples in the same order: {', '.join(map(str, order[:6]))} …")
    if len(ranks) == 1:
        raise Unseen("there is one rank")
    first = [of_rank[0] for of_rank in passes if of_rank]
    if any(len(set(loader_pass["indices"])) < MOST_SHARED * len(loader_pass["indices"]) for loader_pass in first):
        raise Unseen("a rank draws a sample more than once in an epoch")
    by_model = [[until_repeated(samples) for samples in rank.end.get("samples", [])] for rank in ranks]
    shares = [part for recognized in zip(*by_model, strict=False) if (part := share(list(recognized))) is not None]
    by_content, by_index = (
        max(shares, default=None),
        share([until_repeated(loader_pass["indices"]) for loader_pass in first]) if all(passes) else None,
    )
    if by_content is None and by_index is None:
        raise Unseen("no sample was recognized")
    # Data sets of the ranks' own have equal indices too, and samples that are changed at random are never recognized.
    index_tells = by_content is None or are_changed(ranks[0], passes[0])
    part = max(by_content or 0.0, (by_index or 0.0) * index_tells)
    if part > LEAST_SHARED:
        raise Wrong(f"{part:.0%} of the samples of a rank are trained by another rank too")
    if by_index is None:
        return f"the ranks train different samples, {max(len(samples) for samples in by_model[0])} and more of them"
    covered, size = (
        len({index for loader_pass in first for index in loader_pass["indices"]}),
        min(loader_pass["size"] or 0 for loader_pass in first),
    )
    are_complete = all(loader_pass["num_steps"] and not loader_pass["is_cut"] for loader_pass in first)
    if by_index <= LEAST_SHARED and are_complete and covered < size / 1.5:
        raise Wrong(f"the ranks train {covered} of {size} samples in an epoch")
    return f"the ranks train different samples, {covered} in the first epoch"


def repeated_order(rank: Rank, passes: list[Event]) -> list[Any]:
    """The samples of an epoch that are in the order of the epoch before, though they are not in that of the data; none if no epoch is."""
    for loader_pass, later in pairwise(passes):
        order = loader_pass["indices"]
        is_shuffled = any(after < before for before, after in pairwise(order))
        is_same = loader_pass["dataset"] == later["dataset"] and order == later["indices"][: len(order)]
        # A training that begins anew, as with another learning rate, may have the orders of the one before.
        if is_same and is_shuffled and len(order) > 8 and not later["begins"]:
            return order
    if not passes and rank.end.get("num_equal_orders", 0) > 1:
        for recognized in rank.end.get("samples", []):
            size = len(until_repeated(recognized))
            if size > 8 and recognized[:size] == recognized[size : 2 * size]:
                return recognized[:size]
    return []


def until_repeated(numbers: list[Any]) -> set[Any]:
    """The numbers before one comes again."""
    seen: set[Any] = set()
    for number in numbers:
        if number in seen:
            break
        seen.add(number)
    return seen


def share(of_ranks: list[set[Any]]) -> float | None:
    """The largest part of a rank's samples that another rank has; None if there are too few to tell."""
    if min(map(len, of_ranks)) < 8:
        return None
    return max(len(samples & others) / min(len(samples), len(others)) for samples, others in combinations(of_ranks, 2))


def are_changed(rank: Rank, passes: list[Event]) -> bool:
    """Whether no sample is the same in two epochs."""
    return len(passes) > 1 and all(len(set(samples)) == len(samples) for samples in rank.end.get("samples", []))


def parameters(ranks: list[Rank]) -> str:
    for rank in ranks:
        if not rank.steps:
            raise Wrong(f"rank {rank.number} computed gradients {rank.end.get('num_backward', 1)} times, and no optimizer took a step")
        if name := first_frozen(rank):
            raise Wrong(f"{name} is frozen and changes on rank {rank.number}")
        in_optimizer = {name for step in rank.steps for name in step["gradients"]}
        for name in rank.end.get("with_gradient", []):
            if not is_changed(name, rank) and len(rank.values(name)) > 1 and rank.sizes[name][0] and moves(name, rank):
                reason = "" if name in in_optimizer else f", which is no tensor of the {rank.steps[0]['optimizer']}"
                raise Wrong(f"{name} gets gradients and does not change in {len(rank.steps)} steps on rank {rank.number}{reason}")
        if computed := [name for name in rank.end.get("without_gradient", []) if name in in_optimizer and is_whole(name, ranks)]:
            raise Wrong(f"{computed[0]} is computed and never gets a gradient on rank {rank.number}")
    num_changed = sum(is_changed(name, ranks[0]) for name in ranks[0].sizes)
    if not num_changed:
        raise Unseen("no parameter of a model was seen to change")
    return f"{num_changed} parameters get gradients and change"


def is_changed(name: str, rank: Rank) -> bool:
    return any(earlier != later for earlier, later in pairwise(rank.values(name)))


def first_frozen(rank: Rank) -> str | None:
    """A parameter of an optimizer that needs no gradient, and changes."""
    for step, later in pairwise(rank.steps):
        for name, (*_, requires_gradient) in step["gradients"].items():
            if not requires_gradient and step["values"][name] != later["values"][name]:
                return name
    return None


def is_applied_as_is(step: Event) -> bool:
    """Whether no gradient was divided after it was computed."""
    pairs = [(applied, alone) for applied, alone, *_ in step["gradients"].values() if applied and alone]
    return any(length(applied) > 0.8 * length(alone) for applied, alone in pairs)


def moves(name: str, rank: Rank) -> bool:
    """Whether the gradients of a parameter are large enough to change it."""
    steps = [step for step in rank.steps if name in step["gradients"]]
    sizes = [length(numbers) * max(step["rates"], default=0.0) for step in steps for numbers in step["gradients"][name][:2] if numbers]
    return not steps or max(sizes, default=0.0) > 1e-6 * length(steps[0]["values"][name])


def loss(ranks: list[Rank]) -> str:
    uneven = []
    for number, steps in together(ranks):
        for rank, step in zip(ranks, steps, strict=True):
            if step["rates"] != steps[0]["rates"]:
                rates = f"{step['rates'][0]:g} on rank {rank.number} and {steps[0]['rates'][0]:g} on rank {ranks[0].number}"
                raise Wrong(f"at step {number} the learning rate is {rates}")
        losses = [(terms, factor) for step in steps for _, terms, factor in step["losses"]]
        is_known = bool(losses) and all(terms and factor for terms, factor in losses)
        weights = [factor / terms for terms, factor in losses] if is_known else [1]
        num_batches = steps[0]["num_batches"]
        if is_known and num_batches == len(steps[0]["losses"]) > 1:
            factor = loss_factor(steps[0])
            if is_near(factor, num_batches) and is_applied_as_is(steps[0]):
                raise Wrong(f"at step {number} the means of {num_batches} micro-batches are added, not averaged")
            if is_near(factor, 1 / num_batches):
                raise Wrong(f"at step {number} the losses are divided by the number of micro-batches, {num_batches}, twice")
        if max(weights) > 1.1 * min(weights):
            uneven.append((number, losses))
    for rank in ranks:
        if len(rank.steps) >= 8 and not any(rate for step in rank.steps for rate in step["rates"]):
            raise Wrong(f"the learning rate is 0 in all {len(rank.steps)} steps of rank {rank.number}")
        for scheduler in rank.end.get("schedulers", []):
            num_steps = scheduler["num_steps"] - scheduler["num_before"]
            if scheduler["num"] > 1.5 * (num_steps + 1):
                raise Wrong(
                    f"{scheduler['kind']} steps {scheduler['num']} times in {num_steps} steps of its optimizer on rank {rank.number}"
                )
    if len(uneven) > 0.5 * len(ranks[0].steps):
        number, losses = uneven[0]
        raise Wrong(
            f"at step {number} the batches have {', '.join(f'{terms:g}' for terms, _ in losses)} terms of the loss, and not these weights"
        )
    return f"the learning rates and the weights of the ranks are equal in {len(ranks[0].steps)} steps"


def evaluation(ranks: list[Rank]) -> str:
    parts: list[float] = []
    for rank in ranks:
        for kind, training, is_inactive, number in rank.end.get("modes", []):
            if is_inactive and not training:
                raise Wrong(f"{kind} is in evaluation mode in {number} steps of training on rank {rank.number}")
        evaluations = rank.evaluations
        # What a step of training computes without gradients, such as a teacher.
        if 2 * len(evaluations) > rank.num_steps:
            continue
        is_trained = any(event["is_trained"] for event in evaluations)
        for event in evaluations:
            of_event = parts_trained(event, ranks)
            expect_right_evaluation(event, rank, is_trained, of_event)
            parts += of_event
        for event in rank.saved:
            if is_stale(event, rank):
                raise Wrong(f"what rank {rank.number} saves after step {event['steps']} has the parameters of the start")
    num_evaluations, num_saved = (
        sum(len(of_rank) for of_rank in events) for events in zip(*((r.evaluations, r.saved) for r in ranks), strict=True)
    )
    if not num_evaluations + num_saved:
        raise Unseen("no model was evaluated or saved")
    if parts and min(parts) >= MOST_SHARED:
        raise Unseen("all samples that are evaluated are trained, and none are held out")
    return f"{num_evaluations} evaluations and {num_saved} saved states have the trained model"


def expect_right_evaluation(event: Event, rank: Rank, is_trained: bool, parts: list[float]) -> None:
    place = f"after step {event['steps']} on rank {rank.number}"
    if any(event["layers"]):
        raise Wrong(f"{event['kind']} is evaluated {place} with layers in training mode")
    # Those of other ranks are set to rank 0's by DistributedDataParallel.
    if event["changed"] and rank.number == 0:
        raise Wrong(f"the evaluation {place} changes the buffer {event['changed'][0]}")
    if is_stale(event, rank) and not is_trained:
        raise Wrong(f"the {event['kind']} that is evaluated {place} has the parameters of the start")
    # A script may evaluate training samples too. Where others are all held out, some of them only have not been drawn so far.
    mixed = [part for part in parts if LEAST_SHARED < part < MOST_SHARED]
    if mixed and min(parts) > LEAST_SHARED:
        raise Wrong(f"{max(mixed):.0%} of the samples that are evaluated {place} are trained")


def parts_trained(event: Event, ranks: list[Rank]) -> list[float]:
    """Of the samples of each evaluated pass, or call, the part on which the model is trained."""
    of_ranks = [rank.end.get("samples", []) for rank in ranks]
    models = range(max(map(len, of_ranks))) if event["model"] is None else [event["model"]]
    trained = {sample for by_model in of_ranks for model in models if model < len(by_model) for sample in by_model[model]}
    return [len(trained.intersection(samples)) / len(samples) for samples in event["samples"] if len(samples) >= 8]


def is_stale(event: Event, rank: Rank) -> bool:
    """Whether most parameters that are evaluated or saved are those of the start, of the ones that training has changed."""
    start = rank.steps[0]["values"]
    pairs = [(minus(given, start[name]), minus(now, start[name])) for name, given, now in event["parameters"] if name in start]
    stale = [length(given) <= STALE * length(now) for given, now in pairs if length(now)]
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


CHECKS: dict[str, Callable[[list[Rank]], str]] = {
    "start": start, "gradients": gradients, "replicas": replicas, "samples": samples, "parameters": parameters, "loss": loss,
    "evaluation": evaluation, "random": random, "state": state,
}  # fmt: skip

"""The observations of the ranks of a script, as tandem_probe.py wrote them, and how those of several ranks are compared."""

import itertools
import json
import math
import operator
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

# Of what a step changes: replicas may differ by less, from rounding.
SHARE_OF_CHANGE = 1e-3

Event = dict[str, Any]
Numbers = list[float]


def read(folder: Path) -> list[list[Event]]:
    """The events of each process; a process that was killed may not have finished its last line."""
    texts = [path.read_text() for path in sorted(folder.iterdir())]
    return [[json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()] for text in texts]


class Rank:
    """The observations of a rank."""

    def __init__(self, events: list[Event]) -> None:
        def of(kind: str) -> list[Event]:
            return [event for event in events if event["event"] == kind]

        # Before the ranks have met, and after, each is the only one.
        identity = max(events, key=lambda event: event["world_size"])
        self.number, self.world_size = identity["rank"], identity["world_size"]
        self.models, self.steps, self.evaluations, self.saved, self.failures = map(of, ("model", "step", "evaluation", "saved", "failed"))
        self.end: Event = (of("end") or [{}])[0]
        # Those of its loaders whose batches were trained.
        self.passes: list[Event] = [loader_pass for loader_pass in self.end.get("passes", []) if loader_pass["trains"]]
        self.sizes: dict[str, list[int]] = {name: size for model in self.models for name, size in model["sizes"].items()}
        self.num_steps: int = self.end.get("num_steps", len(self.steps))
        self.start: dict[str, Numbers] = self.steps[0]["values"] if self.steps else {}
        self.buffers: dict[str, Numbers] = {name: numbers for model in self.models for name, numbers in model["buffers"].items()}

    def values(self, name: str) -> list[Numbers]:
        """A parameter before each step that was watched."""
        return [step["values"][name] for step in self.steps if name in step["values"]]


def length(numbers: Numbers) -> float:
    return math.hypot(*numbers)


def are_close(numbers: Numbers, others: Numbers, tolerance: float) -> bool:
    return math.dist(numbers, others) <= tolerance * max(length(numbers), length(others))


def is_whole(name: str, ranks: list[Rank]) -> bool:
    """Whether each rank has all elements of a parameter."""
    return all(name in rank.sizes and rank.sizes[name][0] == rank.sizes[name][1] for rank in ranks)


def together(ranks: list[Rank]) -> list[tuple[Event, ...]]:
    """The steps of all ranks until one, which has fewer samples, is at the end of an epoch before another."""
    num_steps = min(len(rank.steps) for rank in ranks)
    ends_of = [[loader_pass["num_steps"] for loader_pass in rank.passes if loader_pass["num_steps"]] for rank in ranks]
    uneven = [ends for ends in zip(*ends_of, strict=False) if len(set(ends)) > 1]
    if uneven:
        num_steps = min(num_steps, *uneven[0])
    elif not any(ends_of) and all(rank.end for rank in ranks) and len({rank.num_steps for rank in ranks}) > 1:
        num_steps = 1
    return list(zip(*(rank.steps[:num_steps] for rank in ranks), strict=True))


def differences(ranks: list[Rank]) -> dict[str, list[int]]:
    """Of each whole parameter that is not always equal, after each step the place of a rank where it is another one; 0 for none."""
    different, num_steps = {}, len(together(ranks))
    for name in ranks[0].sizes:
        of_ranks = [rank.values(name)[:num_steps] for rank in ranks] if is_whole(name, ranks) else []
        places = [different_rank(before, after) for before, after in pairwise(zip(*of_ranks, strict=False))]
        if any(places):
            different[name] = places
    return different


def different_rank(before: Sequence[Numbers], after: Sequence[Numbers]) -> int:
    """The place of a rank whose values after a step are not those of the first rank, up to rounding; 0 for none."""
    change = max(map(math.dist, before, after))
    distances = [0.0 if are_close(numbers, after[0], 1e-9) else math.dist(numbers, after[0]) for numbers in after]
    return next((place for place, distance in enumerate(distances) if distance > SHARE_OF_CHANGE * change), 0)


def are_averaged_later(different: dict[str, list[int]]) -> bool:
    """Whether each parameter that differs is equal again after a later step."""
    return all(0 in itertools.dropwhile(operator.not_, places) for places in different.values())

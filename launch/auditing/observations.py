"""The observations of the ranks of a script, as tandem_probe.py wrote them, and how those of several ranks are compared."""

import json
import math
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Of what a step changes: replicas may differ by less, from rounding.
SHARE_OF_CHANGE = 1e-3
# Relative. Gradients in 16 bits, and compressed ones, are rounded by less; those of other samples differ by more.
GRADIENT_TOLERANCE = 0.02

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

        identity = of("trains") or of("failed")
        self.number, self.world_size = identity[0]["rank"], identity[0]["world_size"]
        self.models, self.steps, self.passes, self.evaluations, self.saved = map(of, ("model", "step", "pass", "evaluation", "saved"))
        self.failures = of("failed")
        self.end: Event = (of("end") or [{}])[0]
        self.sizes: dict[str, list[int]] = {name: size for model in self.models for name, size in model["sizes"].items()}
        self.num_steps: int = self.end.get("num_steps", len(self.steps))

    def values(self, name: str) -> list[Numbers]:
        """A parameter before each step that was watched, and after the last one if no other came."""
        values = [step["values"][name] for step in self.steps if name in step["values"]]
        at_end = self.end.get("values", {})
        return [*values, at_end[name]] if name in at_end and self.num_steps == len(self.steps) else values


def length(numbers: Numbers) -> float:
    return math.hypot(*numbers)


def minus(numbers: Numbers, others: Numbers) -> Numbers:
    return list(map(operator.sub, numbers, others))


def are_close(numbers: Numbers, others: Numbers, tolerance: float) -> bool:
    return length(minus(numbers, others)) <= tolerance * max(length(numbers), length(others))


def mean(of_ranks: list[Numbers]) -> Numbers:
    return [math.fsum(numbers) / len(of_ranks) for numbers in zip(*of_ranks, strict=True)]


def multiple(numbers: Numbers, average: Numbers) -> float | None:
    """By which positive factor numbers are an average; None if they are no multiple of it."""
    factor = sum(map(operator.mul, numbers, average)) / (length(average) ** 2 or 1)
    return factor if factor > 0 and are_close(numbers, [factor * number for number in average], GRADIENT_TOLERANCE) else None


def is_near(factor: float | None, expected: float) -> bool:
    return factor is not None and abs(factor / expected - 1) <= GRADIENT_TOLERANCE


def is_whole(name: str, ranks: list[Rank]) -> bool:
    """Whether each rank has all elements of a parameter."""
    return all(rank.sizes[name][0] == rank.sizes[name][1] for rank in ranks)


def together(ranks: list[Rank]) -> Iterator[tuple[int, list[Event]]]:
    """The steps that all ranks took at the same time, by number."""
    yield from enumerate(map(list, zip(*(rank.steps[: num_together(ranks)] for rank in ranks), strict=True)), 1)


def num_together(ranks: list[Rank]) -> int:
    """The number of steps until a rank, which has fewer samples, is at the end of an epoch before another one."""
    passes_of = [[loader_pass for loader_pass in rank.passes if loader_pass["num_steps"] and loader_pass["trains"]] for rank in ranks]
    if not any(passes_of) and all(rank.end for rank in ranks) and len({rank.num_steps for rank in ranks}) > 1:
        return 1
    for passes in zip(*passes_of, strict=False):
        if len(ends := {loader_pass["num_steps"] for loader_pass in passes}) > 1:
            return min(*ends, *(len(rank.steps) for rank in ranks))
    return min(len(rank.steps) for rank in ranks)


def differences(ranks: list[Rank], places: range) -> list[tuple[int, str, int]]:
    """(place, parameter, rank) of the values, before the step at a place, that are not those of the first rank, up to rounding."""
    different = []
    for name in ranks[0].sizes:
        values = [rank.values(name) for rank in ranks] if is_whole(name, ranks) else [[]]
        for place in range(places.start, min(places.stop, *map(len, values))):
            change = max(length(minus(of_rank[place], of_rank[place - 1])) for of_rank in values) if place else 0.0
            for rank, of_rank in zip(ranks, values, strict=True):
                distance = length(minus(of_rank[place], values[0][place]))
                if distance > SHARE_OF_CHANGE * change and not are_close(of_rank[place], values[0][place], 1e-9):
                    different.append((place, name, rank.number))
    return sorted(different)

"""The rows of a forecast: what follows from the time of a step at a number of ranks, and the knee. Pure."""

import math
from typing import NamedTuple

from common.config import Settings
from common.cost import parallelism
from common.record.definition import Record
from launch.forecast.scaling import growth, held_out, measured, second_opinion
from launch.forecast.scaling.held_out import HeldOut
from launch.forecast.scaling.model import Model, Parts
from launch.forecast.scaling.wish import Wish
from launch.report import comparable
from launch.report.entries import Comparison

# Beyond this many times the largest measured size a forecast is marked as extrapolated.
FAR = 4
KNEE = 0.5
MAX_RANKS = 2**24
SECONDS_PER_HOUR = 3600


class Forecast(NamedTuple):
    """A size: `kind` is measured, forecast or extrapolated. What cannot be known is None. `hours`: of all cores or GPUs in a run."""

    num_ranks: int
    num_nodes: int
    kind: str
    parts: Parts | None
    step_seconds: float
    low_seconds: float | None
    high_seconds: float | None
    samples_per_second: float
    efficiency: float
    second_opinion_seconds: float | None
    epochs: float | None
    run_seconds: float | None
    hours: float | None
    cost: float | None


class Case(NamedTuple):
    """What the rows of one backend are made from."""

    comparison: Comparison
    backend: str
    settings: Settings
    model: Model
    sizes: list[measured.Size]
    held_out: list[HeldOut]
    opinion: second_opinion.Opinion
    record: Record
    wish: Wish

    def problem(self, num_ranks):
        """Why the backend cannot train at a number of ranks; None if it can."""
        return parallelism.problem(self.backend, self.settings, num_ranks)

    def degree(self, num_ranks):
        return parallelism.degree(self.backend, self.settings, num_ranks)

    def batch(self, num_ranks):
        """The global batch."""
        largest = self.sizes[-1]
        ratio = 1 if self.comparison.scaling == "strong" else self.degree(num_ranks) / self.degree(largest.num_ranks)
        return round(largest.batch_size * ratio)

    def efficiency(self, num_ranks, step_seconds):
        """Samples per second and rank, over those of the smallest measured size."""
        first = self.sizes[0]
        return self.batch(num_ranks) / step_seconds / num_ranks * first.num_ranks / first.samples_per_second


def measured_row(case, size):
    """The Forecast of a Size that was measured."""
    return _completed(case, size.num_ranks, size.num_nodes, "measured", None, size.step_seconds, (None, None), size.evaluation_seconds)


def row(case, num_ranks):
    """The Forecast of a number of ranks."""
    parts, largest = case.model.parts(num_ranks), case.sizes[-1].num_ranks
    evaluation = growth.inverse([(size.num_ranks, size.evaluation_seconds) for size in case.sizes])(num_ranks)
    reach = held_out.band(parts.step, num_ranks, largest, case.held_out)
    kind = "extrapolated" if num_ranks > FAR * largest else "forecast"
    num_nodes = math.ceil(num_ranks / case.model.machine.ranks_per_node)
    return _completed(case, num_ranks, num_nodes, kind, parts, parts.step, reach, evaluation)


def _completed(case, num_ranks, num_nodes, kind, parts, step_seconds, reach, evaluation_seconds):
    """A row, with what follows from the time of a step."""
    batch, largest = case.batch(num_ranks), case.sizes[-1]
    drops = case.record.settings.last_batch == "drop"
    num_steps = largest.num_samples // batch if drops else math.ceil(largest.num_samples / batch)
    has_target = case.comparison.target is not None
    epochs = _epochs(case.comparison, case.degree(num_ranks)) if has_target and num_steps else 1.0
    run_seconds = largest.load_seconds + epochs * (num_steps * step_seconds + evaluation_seconds) if num_steps and epochs else None
    settings = case.record.settings
    per_rank = 1 if comparable.device_of(case.record) == "cuda" else settings.cores_per_rank or settings.threads
    hours = run_seconds and run_seconds / SECONDS_PER_HOUR * num_ranks * per_rank
    return Forecast(
        num_ranks, num_nodes, kind, parts, step_seconds, *reach, batch / step_seconds, case.efficiency(num_ranks, step_seconds),
        case.opinion.function and case.opinion.function(num_ranks), epochs if has_target and num_steps else None,
        run_seconds, hours, hours * case.wish.price if hours and case.wish.price is not None else None,
    )  # fmt: skip


def _epochs(comparison, degree):
    """Epochs to the target, pooled over exact backends; None if unknown. Those of oversubscribed runs count: cores do not change them."""
    epochs_of = {}
    for entry in comparison.entries:
        if entry.exact:
            epochs_of.setdefault(entry.batch_ratio, []).extend(measured.epochs_to_target(entry))
    means = [(ratio, sum(numbers) / len(numbers)) for ratio, numbers in sorted(epochs_of.items()) if numbers]
    return growth.epochs_to_target(means, comparison.scaling)(degree) if means else None


def knee(case):
    """The number of ranks at which efficiency is KNEE, on a line between two doublings; None where it stays above as far as can be trained.

    Only doublings are looked at: between powers of 2 some algorithms take two rounds more, and efficiency goes up and down.
    """

    def efficiency(num_ranks):
        return case.efficiency(num_ranks, case.model.step_seconds(num_ranks))

    low = case.sizes[0].num_ranks
    while (high := 2 * low) <= MAX_RANKS and not case.problem(high):
        if (below := efficiency(high)) < KNEE:
            above = max(efficiency(low), KNEE)
            return round(low * 2 ** ((above - KNEE) / (above - below)))
        low = high
    return None

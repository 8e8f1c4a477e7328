"""Records -> forecasts of each backend, workload and kind of scaling, at the requested sizes."""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from common import backends
from common.backends import declaration_of
from common.command_line import RANKS, shortened
from common.config import Settings
from common.cost import parallelism
from common.errors import UserError
from common.record.definition import Record
from launch.forecast.network.messages import Network
from launch.forecast.scaling import fitting, growth, held_out
from launch.forecast.scaling.held_out import HeldOut
from launch.forecast.scaling.measured import PlainAllReduces, Size
from launch.forecast.scaling.model import Model, Parts
from launch.report import comparable, epochs
from launch.report.entries import Comparison

# Nothing is forecast beyond this many times the largest measured size.
FAR = 16
KNEE = 0.5
SECONDS_PER_HOUR = 3600


class Wish(NamedTuple):
    """The sizes and the network to forecast.

    Without `ranks` it is the doublings of the largest measured size, without `network` that of the records.
    """

    ranks: tuple[int, ...] | None = None
    network: Network | None = None
    ranks_per_node: int | None = None


def sizes_of(text: str, option: str = "--ranks") -> tuple[int, ...]:
    """Reads numbers of ranks such as 16,64,1024. Raises UserError for any other text, and for an empty one."""
    try:
        sizes = tuple(dict.fromkeys(int(number) for number in text.split(",") if number.strip()))
    except ValueError:
        raise UserError(f"{option} is {shortened(text)}; give whole numbers separated by commas, such as 16,64,1024") from None
    if not sizes:
        raise UserError(f"{option} is empty; give numbers of ranks, such as 16,64,1024")
    for size in sizes:
        if problem := RANKS.problem(size):
            raise UserError(f"{option} has {shortened(str(size))}; {problem}")
    return sizes


class Forecast(NamedTuple):
    """A size, whose `kind` is measured or forecast. What cannot be known is None. `hours` are of all cores or GPUs in a run."""

    num_ranks: int
    num_nodes: int
    kind: str
    parts: Parts | None
    step_seconds: float
    low_seconds: float | None
    high_seconds: float | None
    samples_per_second: float
    efficiency: float
    epochs: float | None
    run_seconds: float | None
    hours: float | None


@dataclass(frozen=True)
class Subject:
    """One backend of a comparison, and its forecasts at the requested sizes.

    `settings` are those that decide what the backend can train; `record` is of a run at the largest of the measured `sizes`.
    """

    comparison: Comparison
    backend: str
    settings: Settings
    model: Model
    sizes: list[Size]
    held_out: list[HeldOut]
    record: Record
    wish: Wish

    @property
    def about(self) -> str:
        """Names the workload and the scaling."""
        return self.comparison.name

    @property
    def has_target(self) -> bool:
        return self.comparison.target is not None

    @property
    def on_gpu(self) -> bool:
        return comparable.device_of(self.record) == "cuda"

    @property
    def ranks(self) -> tuple[int, ...]:
        """Returns the requested numbers of ranks."""
        largest = self.sizes[-1].num_ranks
        return self.wish.ranks or tuple(largest * 2**doublings for doublings in range(1, int(math.log2(FAR)) + 1))

    @functools.cached_property
    def impossible(self) -> dict[int, str]:
        """Explains why the backend cannot train at some of the requested sizes that were not measured."""
        unmeasured = set(self.ranks) - {size.num_ranks for size in self.sizes}
        return {num_ranks: problem for num_ranks in unmeasured if (problem := self.problem(num_ranks))}

    @functools.cached_property
    def forecasts(self) -> list[Forecast]:
        """Returns the forecasts of the measured and of the requested sizes, by ascending number of ranks."""
        row_of = {size.num_ranks: _measured_row(self, size) for size in self.sizes}
        for num_ranks in set(self.ranks) - row_of.keys() - self.impossible.keys():
            row_of[num_ranks] = _row(self, num_ranks)
        return [row_of[num_ranks] for num_ranks in sorted(row_of)]

    @functools.cached_property
    def knee(self) -> int | None:
        """The number of ranks where efficiency falls below KNEE, on a line between two doublings; None where it stays above throughout.

        Only doublings count: between powers of 2 some algorithms take two rounds more, and efficiency goes up and down.
        """

        def efficiency(num_ranks: int) -> float:
            return self.efficiency(num_ranks, self.model.predicted_step_seconds(num_ranks))

        low = self.sizes[0].num_ranks
        while (high := 2 * low) <= FAR * self.sizes[-1].num_ranks and not self.problem(high):
            if (efficiency_high := efficiency(high)) < KNEE:
                efficiency_low = max(efficiency(low), KNEE)
                return round(low * 2 ** ((efficiency_low - KNEE) / (efficiency_low - efficiency_high)))
            low = high
        return None

    def problem(self, num_ranks: int) -> str | None:
        """Explains why there is no forecast at a number of ranks; None if there is one."""
        if num_ranks > FAR * self.sizes[-1].num_ranks:
            return f"it is more than {FAR} times the {self.sizes[-1].num_ranks} ranks that were measured"
        return parallelism.problem(self.backend, self.settings, num_ranks, self.model.machine.ranks_per_node)

    def degree(self, num_ranks: int) -> int:
        return parallelism.degree(self.backend, self.settings, num_ranks, self.model.machine.ranks_per_node)

    def batch(self, num_ranks: int) -> int:
        """Returns the global batch."""
        largest = self.sizes[-1]
        ratio = 1 if self.comparison.scaling == "strong" else self.degree(num_ranks) / self.degree(largest.num_ranks)
        return round(largest.batch_size * ratio)

    def efficiency(self, num_ranks: int, step_seconds: float) -> float:
        """Returns the samples per second and rank, over those of the smallest measured size."""
        first = self.sizes[0]
        return self.batch(num_ranks) / step_seconds / num_ranks * first.num_ranks / first.samples_per_second


def of(comparisons: Sequence[Comparison], wish: Wish) -> tuple[list[Subject], list[str]]:
    """Forecasts comparisons, with sentences on what is left out. Raises UserError where nothing can be forecast."""
    _expect_something(comparisons)
    plain = fitting.plain_all_reduces(comparisons)
    subjects, left_out, problems = [], [], []
    for comparison in comparisons:
        for backend in dict.fromkeys(entry.backend for entry in comparison.entries):
            if backends.has_one_rank(backend):
                continue
            sizes, declaration = fitting.sizes_of(comparison, backend, plain), declaration_of(backend)
            if declaration.num_servers or (declaration.model_parallel and not declaration.pipelined):
                left_out.append(f"{comparison.name}, {backend}: no forecast, since the model is of data parallelism and pipelines.")
            elif len(sizes) < 2:
                named = f"one size, {sizes[0].num_ranks}" if sizes else "no size with a step breakdown and a core for each rank"
                left_out.append(f"{comparison.name}, {backend}: no forecast, since there is {named}.")
            else:
                try:
                    subjects.append(_subject(comparison, backend, sizes, plain, wish))
                except UserError as problem:
                    problems.append(problem)
                    left_out.append(f"{comparison.name}, {backend}: no forecast, since {problem}.")
    if not subjects:
        few = "these records have one size of each backend; a forecast takes two or more, to be tested on what it was not fitted to"
        raise problems[0] if problems else UserError(few)
    _expect_near(subjects, wish)
    return subjects, left_out


def _expect_near(subjects: list[Subject], wish: Wish) -> None:
    """Raises UserError for a number of ranks that is far beyond what any backend has been measured at."""
    largest = max(subject.sizes[-1].num_ranks for subject in subjects)
    if far := [size for size in wish.ranks or () if size > FAR * largest]:
        raise UserError(
            f"{far[0]:,} ranks are more than {FAR} times the {largest} that were measured; ask for {FAR * largest:,} at most, "
            "or measure more"
        )


def _expect_something(comparisons: Iterable[Comparison]) -> None:
    """Raises UserError where no run can be used."""
    completed = [entry for comparison in comparisons for entry in comparison.entries if entry.ok]
    distributed = [entry for entry in completed if not backends.has_one_rank(entry.backend)]
    if not distributed:
        raise UserError("these records have no completed run of a distributed backend; train one at two sizes, such as 1 and 2")
    fair = [entry for entry in distributed if not entry.oversubscribed]
    if not fair:
        raise UserError(
            "all of these runs were oversubscribed (more ranks than cores), and show no scaling; train with a core for each rank"
        )
    if not any(record.step_breakdown for entry in fair for record in entry.ok):
        raise UserError("these records have no step breakdown; train without --no-step-breakdown, --timeline and --trace")


def _subject(comparison: Comparison, backend: str, sizes: list[Size], plain: PlainAllReduces, wish: Wish) -> Subject:
    entry = comparison.entry(backend, sizes[-1].num_ranks)
    assert entry, "each size is that of an entry"
    record, transport = entry.ok[0], entry.transport
    settings = fitting.settings_of(backend, record)

    def fit(fitted_sizes: Sequence[Size], held: Size | None = None) -> Model:
        return fitting.fit(comparison.scaling, backend, settings, transport, fitted_sizes, wish, held)

    even, odd = _by_parity(comparison, backend, plain)
    tests = held_out.of_sizes(sizes, fit) + held_out.of_seeds(even, odd, fit)
    return Subject(comparison, backend, settings, fit(sizes), sizes, tests, record, wish)


def _by_parity(comparison: Comparison, backend: str, plain: PlainAllReduces) -> tuple[list[Size], list[Size]]:
    """Returns the sizes of even and of odd repeats, which have different seeds; two empty lists where a size has only one kind."""
    even = fitting.sizes_of(comparison, backend, plain, lambda record: record.repeat % 2 == 0)
    odd = fitting.sizes_of(comparison, backend, plain, lambda record: record.repeat % 2 == 1)
    return (even, odd) if [size.num_ranks for size in even] == [size.num_ranks for size in odd] else ([], [])


def _measured_row(subject: Subject, size: Size) -> Forecast:
    seconds = size.timed_step_seconds, (None, None), size.evaluation_seconds
    return _completed(subject, size.num_ranks, size.num_nodes, "measured", None, *seconds)


def _row(subject: Subject, num_ranks: int) -> Forecast:
    parts, largest = subject.model.parts(num_ranks), subject.sizes[-1].num_ranks
    evaluation = growth.inverse([(size.num_ranks, size.evaluation_seconds) for size in subject.sizes])(num_ranks)
    band = held_out.band(parts.step, num_ranks, largest, subject.held_out)
    num_nodes = math.ceil(num_ranks / subject.model.machine.ranks_per_node)
    return _completed(subject, num_ranks, num_nodes, "forecast", parts, parts.step, band, evaluation)


def _completed(
    subject: Subject,
    num_ranks: int,
    num_nodes: int,
    kind: str,
    parts: Parts | None,
    step_seconds: float,
    band: tuple[float | None, float | None],
    evaluation_seconds: float,
) -> Forecast:
    """Makes a row with what follows from the time of a step."""
    batch, largest = subject.batch(num_ranks), subject.sizes[-1]
    settings = subject.record.settings
    num_steps = largest.num_samples // batch if settings.last_batch == "drop" else math.ceil(largest.num_samples / batch)
    has_target = subject.has_target and num_steps > 0
    num_epochs = _epochs(subject.comparison, subject.degree(num_ranks)) if has_target else 1.0
    run_seconds = largest.load_seconds + num_epochs * (num_steps * step_seconds + evaluation_seconds) if num_steps and num_epochs else None
    per_rank = 1 if subject.on_gpu else settings.cores_per_rank or settings.threads
    hours = run_seconds and run_seconds / SECONDS_PER_HOUR * num_ranks * per_rank
    return Forecast(
        num_ranks, num_nodes, kind, parts, step_seconds, band[0], band[1], batch / step_seconds,
        subject.efficiency(num_ranks, step_seconds), num_epochs if has_target else None, run_seconds, hours,
    )  # fmt: skip


def _epochs(comparison: Comparison, degree: int) -> float | None:
    """Pools the epochs to the target over exact backends; None if unknown.

    Those of oversubscribed runs count, since cores do not change them.
    """
    epochs_of = {}
    for entry in comparison.entries:
        if entry.exact:
            epochs_of.setdefault(entry.batch_ratio, []).extend(filter(None, map(epochs.to_target, entry.from_start)))
    means = [(ratio, sum(numbers) / len(numbers)) for ratio, numbers in sorted(epochs_of.items()) if numbers]
    return growth.epochs_to_target(means, comparison.scaling)(degree) if means else None

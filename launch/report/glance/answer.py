"""The answer at a glance: who is first, by how much, how sure that is, why, what to do. Every form of it is made from this data."""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from common import metric
from common.words import ranks_of
from launch.report import comparable, measures
from launch.report.entries import Comparison, Entry
from launch.report.glance import advice, causes, state
from launch.report.glance.causes import Cause
from launch.report.glance.names import short_names
from launch.report.questions import first, machines
from launch.report.statistics import MIN_RUNS_CONFIDENT, Ratio
from launch.report.summary import Answer
from launch.report.words import EQUAL, NO_DIFFERENCE, runs_against


class Standing(NamedTuple):
    """A backend at a size.

    `value`: its seconds to the target, or its samples a second in a workload without a target. `miss`: why there is no value. `ratio`: its
    seconds per epoch over those of the fastest; None for the fastest itself and where they are not compared. `remark`: why it is set apart.
    """

    backend: str
    value: float | None
    miss: str | None
    ratio: Ratio | None
    verdict: str | None
    remark: str | None


class Group(NamedTuple):
    """The backends at one size on one machine, the fastest by seconds per epoch first. `name` says where that is."""

    name: str
    machine: str
    num_ranks: int
    standings: list[Standing]

    @property
    def fastest(self) -> Standing | None:
        """The backend with the lowest seconds per epoch; None where none has a value."""
        return next((standing for standing in self.standings if standing.value is not None), None)

    @property
    def first(self) -> Standing | None:
        """The backend that reached the target first, of those that train the same; the fastest where none of them did."""
        timed = [standing for standing in self.standings if standing.value is not None and not standing.remark]
        return min(timed, key=lambda standing: standing.value or 0.0, default=self.fastest)

    @property
    def second(self) -> Standing | None:
        """The backend that is compared with the fastest and comes next; None where there is none."""
        return next((standing for standing in self.standings if standing.ratio and not standing.remark), None)

    @property
    def tied(self) -> list[Standing]:
        """The backends that are not shown to differ from the fastest."""
        return [standing for standing in self.standings if standing.verdict in (EQUAL, NO_DIFFERENCE)]


class Panel(NamedTuple):
    """A workload: its groups by size, or by machine. `has_target`: whether values are seconds to the target."""

    name: str
    short_name: str
    target: float | None
    groups: list[Group]

    @property
    def has_target(self) -> bool:
        return self.target is not None

    @property
    def backends(self) -> list[str]:
        """The backends, in the order of the last group."""
        return list(dict.fromkeys(standing.backend for group in reversed(self.groups) for standing in group.standings))


class Glance(NamedTuple):
    """The answer at a glance; `certainty` says how sure the order is, and `causes_at` at which size the causes are.

    `leaving` says what leaving Horovod costs or gains there, and is empty where that was not measured.
    """

    machine: str
    backends: list[str]
    panels: list[Panel]
    certainty: str
    is_sure: bool
    causes: list[Cause]
    causes_at: str
    state: list[str]
    advice: list[str]
    leaving: str


def answer(report: Answer) -> Glance:
    """Returns the answer at a glance of a whole report, of one machine or of several."""
    are_machines = len(comparable.machines_of(report.runs)) > 1
    panels = _panels_of_machines(report) if are_machines else _panels(report.comparisons)
    num_runs = [num for panel in panels for group in panel.groups for num in _num_runs(group)]
    reasons = causes.of_machines(report.comparisons) if are_machines else causes.of_machine(report.comparisons)
    return Glance(
        report.machine,
        report.backends,
        panels,
        _certainty(num_runs),
        bool(num_runs) and min(num_runs) >= MIN_RUNS_CONFIDENT,
        reasons,
        "" if are_machines else causes.where(report.comparisons),
        [*(report.headline if are_machines else []), *state.sentences(report)],
        [] if are_machines else advice.sentences(report.comparisons),
        "" if are_machines else causes.of_leaving(report.comparisons),
    )


def _panels(comparisons: Sequence[Comparison]) -> list[Panel]:
    short_name_of = short_names(comparisons)
    return [
        Panel(comparison.name, short_name_of[comparison.name], comparison.target, groups)
        for comparison in comparisons
        if (groups := _groups(comparison))
    ]


def _groups(comparison: Comparison) -> list[Group]:
    """Returns the groups of a comparison by size, those of oversubscribed entries only where there are no others."""
    has_cores = any(not entry.oversubscribed for entry in comparison.entries)
    candidates_of = {size: comparison.of_size(size, oversubscribed=not has_cores) for size in comparison.sizes}
    machine = comparable.machine_of(comparison.entries[0].records[0])
    return [
        Group(ranks_of(size), machine, size, _standings(candidates, comparison.target is not None))
        for size, candidates in candidates_of.items()
        if candidates
    ]


def _panels_of_machines(report: Answer) -> list[Panel]:
    """Returns a panel for each workload with a group for each machine, at the largest size that two machines or more have."""
    standings = machines.standings_of(report.comparisons)
    target_of = {comparison.name: comparison.target for comparison in report.comparisons}
    compared_names = {name for name, _ in standings}
    short_name_of = short_names(comparison for comparison in report.comparisons if comparison.name in compared_names)
    panels = []
    for name, at in itertools.groupby(standings, lambda at: at[0]):
        *_, (_, size) = at
        groups = [
            Group(f"{machine}, {ranks_of(size)}", machine, size, _standings([place.entry for place in placed], True))
            for machine, placed in standings[name, size].items()
        ]
        panels.append(Panel(name, short_name_of[name], target_of[name], groups))
    return panels


def _standings(candidates: Sequence[Entry], has_target: bool) -> list[Standing]:
    """Returns the standings of the entries of a size, those without a value last."""
    if not has_target:
        return _by_throughput(candidates)
    placed = first.places(candidates)
    with_time = [
        Standing(
            place.entry.backend,
            place.time_to_solution_seconds,
            None,
            place.against,
            None if place.is_apart else place.verdict,
            place.verdict if place.is_apart else None,
        )
        for place in placed
    ]
    return [*with_time, *_without_value(candidates, [place.entry for place in placed])]


def _by_throughput(candidates: Sequence[Entry]) -> list[Standing]:
    """Returns the standings of entries without a target. Their ratios have no interval: throughput alone gives no verdict."""
    rates = [(rate, entry) for entry in candidates if (rate := first.samples_per_second(entry)) is not None]
    rates.sort(key=lambda pair: -pair[0])
    with_rate = [
        Standing(entry.backend, rate, None, _plain_ratio(rates[0][0] / rate, entry) if number else None, None, None)
        for number, (rate, entry) in enumerate(rates)
    ]
    return [*with_rate, *_without_value(candidates, [entry for _, entry in rates])]


def _plain_ratio(value: float, entry: Entry) -> Ratio:
    return Ratio(value, None, None, len(entry.ok), len(entry.ok), paired=False)


def _without_value(candidates: Iterable[Entry], placed: Sequence[Entry]) -> list[Standing]:
    return [Standing(entry.backend, None, _miss(entry), None, None, None) for entry in candidates if entry not in placed]


def _miss(entry: Entry) -> str:
    """Returns why an entry has no value, with the best accuracy of runs that did not reach the target."""
    miss = (measures.misses(entry) or ["no time"])[0]
    accuracies = [record.accuracy for record in entry.ok if record.accuracy is not None]
    if miss != measures.NOT_REACHED or not accuracies:
        return miss
    return f"{miss} ({metric.best(accuracies, entry.ok[0].lower_is_better):.3g})"


def _num_runs(group: Group) -> list[int]:
    """Returns the number of runs, or of pairs, of each ratio of a group."""
    return [min(ratio.num_above, ratio.num_below) for standing in group.standings if (ratio := standing.ratio)]


def _certainty(num_runs: Sequence[int]) -> str:
    """Returns how sure the order of backends is, from the numbers of runs of their ratios."""
    if not num_runs:
        return "nothing to compare"
    fewest, most = min(num_runs), max(num_runs)
    if most == 1:
        return f"one run each: the order may change; --repeats {MIN_RUNS_CONFIDENT} gives a verdict"
    if most < MIN_RUNS_CONFIDENT:
        runs = runs_against(most, most, paired=False) if fewest == most else f"{fewest} to {most} runs each"
        return f"{runs}: the order may change; --repeats {MIN_RUNS_CONFIDENT} gives a verdict"
    if fewest < MIN_RUNS_CONFIDENT:
        return f"{fewest} to {most} runs each; verdicts by 95 % intervals from {MIN_RUNS_CONFIDENT} on"
    return f"verdicts by 95 % intervals, {fewest if fewest == most else f'{fewest} to {most}'} runs each"

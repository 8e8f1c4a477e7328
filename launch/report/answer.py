"""The answer as data: who is first, by how much, how sure that is, why, and what to do. The screen, the page and its JSON show it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from common import metric
from common.words import listed, ranks_of
from launch.report import environments, measures
from launch.report.entries import Comparison, Entry
from launch.report.questions import cost, difference, first, leaving_horovod, machines, step
from launch.report.ratio_text import EQUAL, NO_DIFFERENCE, in_percent, runs_against
from launch.report.reliability import advice_on, reliability_of
from launch.report.report import Report
from launch.report.statistics import MIN_RUNS_CONFIDENT, Ratio

# A smaller effect explains little.
SMALL = 0.02
# The most workloads that the heading of the causes names, whose values then stand in its order.
MAX_IN_HEADING = 2
# What backends are compared by, by whether their workload has a target.
MEASURE = {True: "seconds per epoch", False: "samples a second"}
# What to do next where there are several machines.
BETWEEN_MACHINES = "launch.compare FOLDER --baseline OTHER-FOLDER for a verdict on one of the machines"


class Row(NamedTuple):
    """A backend in a group.

    `value`: its seconds to the target, or its samples a second in a workload without a target. `miss`: why there is no value. `ratio`: its
    seconds per epoch over those of the fastest; None for the fastest itself and where they are not compared. `remark`: why it is set apart.
    `startup_seconds`: from launch to the first step, which are in no other number. `epoch_seconds`: where that is all that is known.
    """

    backend: str
    value: float | None = None
    miss: str | None = None
    ratio: Ratio | None = None
    verdict: str | None = None
    remark: str | None = None
    startup_seconds: float | None = None
    epoch_seconds: float | None = None

    @property
    def startup(self) -> str:
        """The seconds of start-up as text, such as `+4.4`; empty where they are not known."""
        seconds = self.startup_seconds
        return f"+{seconds:.{1 if seconds < 10 else 0}f}" if seconds else ""


class Group(NamedTuple):
    """The backends at one size on one machine, the fastest by seconds per epoch first. `name` says where that is."""

    name: str
    machine: str
    num_ranks: int
    rows: list[Row]

    @property
    def fastest(self) -> Row | None:
        """The backend with the lowest seconds per epoch; None where none has a value."""
        return next((row for row in self.rows if row.value is not None), None)

    @property
    def first(self) -> Row | None:
        """The backend that reached the target first, of those that train the same; the fastest where none of them did."""
        timed = [row for row in self.rows if row.value is not None and not row.remark]
        return min(timed, key=lambda row: row.value or 0.0, default=self.fastest)

    @property
    def second(self) -> Row | None:
        """The backend that is compared with the fastest and comes next; None where there is none."""
        return next((row for row in self.rows if row.ratio and not row.remark), None)

    @property
    def tied(self) -> list[Row]:
        """The backends that are not shown to differ from the fastest."""
        return [row for row in self.rows if row.verdict in (EQUAL, NO_DIFFERENCE)]


class Ranking(NamedTuple):
    """The backends of a workload, in groups by size, or by machine. Values are seconds to the target where it has one."""

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
        return list(dict.fromkeys(row.backend for group in reversed(self.groups) for row in group.rows))


class Cause(NamedTuple):
    """A cause of differences and its evidence; `ratios`: the ratios of seconds per epoch that show it, by comparison."""

    kind: str
    text: str
    ratios: dict[str, Ratio]


class Answer(NamedTuple):
    """The answer from the records of a machine, or of several.

    `certainty` says how sure the order is, `causes_at` at which size and on which workloads the causes are, and `reliability` whether the
    runs are sound. `migration` says what leaving Horovod costs or gains there, and is empty where that was not measured. `quotation` is the
    answer in one sentence, for a report or a ticket.
    """

    machine: str
    rankings: list[Ranking]
    certainty: str
    causes: list[Cause]
    causes_at: str
    reliability: list[str]
    advice: list[str]
    migration: str
    quotation: str

    @property
    def has_verdicts(self) -> bool:
        """Whether any backend has as many runs as a verdict needs."""
        return max(_num_runs(self.rankings), default=MIN_RUNS_CONFIDENT) >= MIN_RUNS_CONFIDENT


def answer_of(report: Report) -> Answer:
    """Returns the answer of a report, on one machine or on several."""
    comparisons, of_runs = report.comparisons, reliability_of(report)
    if len(environments.machines_of(report.runs)) > 1:
        rankings = _rankings_of_machines(comparisons)
        causes = [
            cause._replace(text=f"{machine}: {cause.text}")
            for machine, ran_on in machines.by_machine(comparisons).items()
            for cause in _slow_products(ran_on)
        ]
        quotation = _quotation(report, rankings)
        return Answer(
            report.machine, rankings, _certainty(rankings), causes, "", [*report.headline, *of_runs], [BETWEEN_MACHINES], "", quotation
        )
    names = short_names(comparisons)
    rankings = [
        Ranking(comparison.name, names[comparison.name], comparison.target, groups)
        for comparison in comparisons
        if (groups := _groups(comparison))
    ]
    timed = [comparison for comparison in comparisons if comparison.target is not None]
    sizes = set(map(_largest_size, timed))
    workloads = [names[comparison.name] for comparison in timed] if len(sizes) == 1 and len(timed) <= MAX_IN_HEADING else []
    causes = [*_slow_products(comparisons), *_factors(timed, workloads), *_communication(timed)]
    causes_at = f"{ranks_of(*sizes)}, on {listed(workloads)}" if workloads else ""
    return Answer(
        report.machine, rankings, _certainty(rankings), causes, causes_at, of_runs, advice_on(comparisons), _migration(comparisons),
        _quotation(report, rankings),
    )  # fmt: skip


def short_names(comparisons: Iterable[Comparison]) -> dict[str, str]:
    """Returns the model of each comparison by the comparison's name, or that name where several have one model."""
    model_of = {comparison.name: comparison.model for comparison in comparisons}
    models = list(model_of.values())
    return {name: model if models.count(model) == 1 else name for name, model in model_of.items()}


def _groups(comparison: Comparison) -> list[Group]:
    """Returns the groups of a comparison by size, those of oversubscribed entries only where there are no others."""
    has_cores = any(not entry.oversubscribed for entry in comparison.entries)
    machine = comparison.machine
    return [
        Group(ranks_of(size), machine, size, _rows(entries, comparison.target is not None))
        for size in comparison.sizes
        if (entries := comparison.of_size(size, oversubscribed=not has_cores))
    ]


def _rankings_of_machines(comparisons: Sequence[Comparison]) -> list[Ranking]:
    """Returns a ranking for each workload with a group for each machine, at the largest size that two machines or more have."""
    results_on = machines.results_by_size(comparisons)
    target_of = {comparison.name: comparison.target for comparison in comparisons}
    largest_size = dict(results_on.keys())
    names = short_names(comparison for comparison in comparisons if comparison.name in largest_size)
    return [
        Ranking(
            name,
            names[name],
            target_of[name],
            [
                Group(f"{machine}, {ranks_of(size)}", machine, size, _rows([result.entry for result in results], True))
                for machine, results in results_on[name, size].items()
            ],
        )
        for name, size in largest_size.items()
    ]


def _rows(entries: Sequence[Entry], has_target: bool) -> list[Row]:
    """Returns the rows of the entries of a size, those without a value last.

    Ratios of throughput have no interval, since it alone gives no verdict.
    """
    if has_target:
        ranked = {result.entry.backend: _row(result) for result in first.results_of(entries)}
    else:
        rates = [(rate, entry) for entry in entries if (rate := entry.trimmed_mean(first.RATE)) is not None]
        rates.sort(key=lambda pair: -pair[0])
        ranked = {
            entry.backend: Row(entry.backend, rate, ratio=_plain_ratio(rates[0][0] / rate, entry) if place else None)
            for place, (rate, entry) in enumerate(rates)
        }
    missing = [(measures.epoch_seconds(entry), entry) for entry in entries if entry.backend not in ranked]
    missing.sort(key=lambda pair: pair[0] or math.inf)
    startup_of = {entry.backend: cost.startup_seconds(entry) for entry in entries if entry.ok}
    rows = [*ranked.values(), *(Row(entry.backend, miss=_miss(entry, seconds), epoch_seconds=seconds) for seconds, entry in missing)]
    return [row._replace(startup_seconds=startup_of.get(row.backend)) for row in rows]


def _row(result: first.Result) -> Row:
    row = Row(result.entry.backend, result.time_to_solution_seconds, ratio=result.against)
    return row._replace(verdict=result.verdict) if result.is_comparable else row._replace(remark=result.verdict)


def _plain_ratio(value: float, entry: Entry) -> Ratio:
    return Ratio(value, None, None, len(entry.ok), len(entry.ok), paired=False)


def _miss(entry: Entry, epoch_seconds: float | None) -> str:
    """Returns why an entry has no value, with the best accuracy of runs that did not reach the target, and their seconds per epoch."""
    miss = (measures.misses(entry) or ["no time"])[0]
    accuracies = [record.accuracy for record in entry.ok if record.accuracy is not None]
    if miss != measures.NOT_REACHED or not accuracies:
        return miss
    seconds = f", {epoch_seconds:.2f} s an epoch" if epoch_seconds else ""
    return f"{miss} ({metric.best(accuracies, entry.ok[0].lower_is_better):.3g}){seconds}"


def _certainty(rankings: Sequence[Ranking]) -> str:
    """Returns how sure the order of backends is, from the numbers of runs or pairs of their ratios; without verdicts also who leads."""
    num_runs = _num_runs(rankings)
    if not num_runs:
        rows = [row for ranking in rankings for group in ranking.groups for row in group.rows]
        return "no two times to compare; seconds per epoch are shown" if any(row.epoch_seconds for row in rows) else "nothing to compare"
    fewest, most, each = min(num_runs), max(num_runs), _runs_each(num_runs)
    if most < MIN_RUNS_CONFIDENT:
        return f"{each}: {_leaders(rankings)}may change; --repeats {MIN_RUNS_CONFIDENT} gives a verdict"
    if fewest < MIN_RUNS_CONFIDENT:
        return f"{each}; verdicts by 95 % intervals from {MIN_RUNS_CONFIDENT} on"
    return f"verdicts by 95 % intervals, {each}"


def _runs_each(num_runs: Sequence[int]) -> str:
    fewest, most = min(num_runs), max(num_runs)
    return runs_against(most, most, paired=False) if fewest == most else f"{fewest} to {most} runs each"


def _quotation(report: Report, rankings: Sequence[Ranking]) -> str:
    """Returns the answer in one sentence: at which commit, on which machine, who is first at which size, by how much, and how sure."""
    if not rankings:
        return ""
    commits = environments.values_of(report.runs)["commit"]
    hardware = dict.fromkeys(
        part
        for environment in (run.environment for run in report.runs)
        for part in (environment.gpu and environment.gpu.model, environments.describe_node(environment))
        if part
    )
    leaders = [f"{_leader(group)} on {ranking.short_name} at {group.name}" for ranking in rankings for group in leading_groups(ranking)]
    num_runs = _num_runs(rankings)
    sure = "95 % intervals" if max(num_runs, default=0) >= MIN_RUNS_CONFIDENT else "may change"
    return (
        f"Tandem ({listed(commits)}) on {report.machine} ({'; '.join(hardware)}), {MEASURE[rankings[0].has_target]}: {'; '.join(leaders)}"
        f"{f' ({_runs_each(num_runs)}, {sure})' if num_runs else ''}."
    )


def _leader(group: Group) -> str:
    """Returns the fastest backend of a group and by how much it is before the next one."""
    if not group.fastest:
        shortest = next((row.backend for row in group.rows if row.epoch_seconds), None)
        return f"no backend reached the target, {shortest} has the shortest epochs" if shortest else "no backend completed"
    if not group.second or not group.second.ratio:
        return f"{group.fastest.backend} alone"
    percent = in_percent(group.second.ratio).removeprefix("+")
    difference = f", with no difference shown ({percent})," if group.second in group.tied else f" by {percent}"
    return f"{group.fastest.backend} before {group.second.backend}{difference}"


def _num_runs(rankings: Iterable[Ranking]) -> list[int]:
    """Returns the number of runs, or of pairs, of each ratio to the fastest."""
    ratios = [row.ratio for ranking in rankings for group in ranking.groups for row in group.rows if row.ratio]
    return [min(ratio.num_above, ratio.num_below) for ratio in ratios]


def _leaders(rankings: Iterable[Ranking]) -> str:
    """Returns the fastest backends, and by how much longer an epoch of the next one takes, as the start of a sentence."""
    percents: dict[str, list[float]] = {}
    for ranking in rankings:
        for group in leading_groups(ranking):
            if group.fastest and group.second and group.second.ratio:
                percents.setdefault(group.fastest.backend, []).append(100 * (group.second.ratio.value - 1))
    return "".join(f"{backend} by {_span(of_backend, 0)} %, " for backend, of_backend in percents.items()) or "the order "


def leading_groups(ranking: Ranking) -> list[Group]:
    """Returns the group of the largest size of a ranking, or those of every machine."""
    return ranking.groups if len({group.machine for group in ranking.groups}) > 1 else ranking.groups[-1:]


def _slow_products(comparisons: Iterable[Comparison]) -> list[Cause]:
    """Returns a cause for each framework whose matrix products are far below the fastest on the machine."""
    records = [record for comparison in comparisons for entry in comparison.entries for record in entry.ok]
    return [
        Cause(
            "products",
            f"{slow.framework} multiplies at {slow.percent:.0f} % of what {slow.place} can"
            + (f"; --mkl-kernels fast {'doubles' if slow.percent <= 50 else 'raises'} that" if slow.is_mkl_slow else ""),
            {},
        )
        for slow in environments.slow_products(records)
    ]


def _largest_size(comparison: Comparison) -> int:
    """Returns the largest number of ranks that have cores of their own; 0 without any."""
    return max((entry.num_ranks for entry in comparison.entries if not entry.oversubscribed), default=0)


def _factors(comparisons: Sequence[Comparison], workloads: Sequence[str]) -> list[Cause]:
    """Returns a cause for each effect of framework, library or transport at the largest sizes, the largest first.

    Those on all of the workloads that the heading names are in its order.
    """
    ratios_of: dict[tuple[str, str], dict[str, Ratio]] = {}
    names = short_names(comparisons)
    for comparison in comparisons:
        for effect in difference.effects(first.comparable(comparison.of_size(_largest_size(comparison), oversubscribed=False))):
            ratios_of.setdefault((effect.factor, effect.name), {})[names[comparison.name]] = effect.ratio
    largest_of = {key: max(ratio.value for ratio in ratios.values()) for key, ratios in ratios_of.items()}
    return [
        Cause(factor, f"{name}: {_on_workloads(ratios, workloads)}", ratios)
        for (factor, name), ratios in sorted(ratios_of.items(), key=lambda item: -largest_of[item[0]])
        if largest_of[factor, name] > 1 + SMALL
    ]


def _on_workloads(ratios: Mapping[str, Ratio], workloads: Sequence[str]) -> str:
    if list(ratios) == workloads:
        return listed(list(map(in_percent, ratios.values())))
    return ", ".join(f"{in_percent(ratio)} on {workload}" for workload, ratio in ratios.items())


def _communication(comparisons: Sequence[Comparison]) -> list[Cause]:
    """Returns the cause on the milliseconds of a step that communication adds, by transport and workload; none where it is not measured."""
    texts = []
    names = short_names(comparisons)
    for comparison in comparisons:
        size = _largest_size(comparison)
        by_transport: dict[str, list[float]] = {}
        for entry in comparison.of_size(size, oversubscribed=False) if size > 1 else ():
            exposed = step.parts(comparison, entry).get(step.EXPOSED)
            if exposed is not None and entry.transport:
                by_transport.setdefault(entry.transport, []).append(exposed)
        if by_transport:
            spans = ", ".join(f"{transport} {_span(values)}" for transport, values in sorted(by_transport.items()))
            texts.append(f"{spans} on {names[comparison.name]}")
    return [Cause("step", f"exposed communication, ms: {'; '.join(texts)}", {})] if texts else []


def _span(values: Sequence[float], num_decimals: int = 1) -> str:
    low, high = (f"{value:.{num_decimals}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _migration(comparisons: Sequence[Comparison]) -> str:
    """Returns what leaving Horovod costs or gains an epoch, by the fastest backend that a user may go to; empty where none was measured."""
    names = short_names(comparisons)
    texts: dict[str, list[str]] = {}
    for comparison in comparisons:
        by_framework: dict[str, leaving_horovod.Move] = {}
        for move in leaving_horovod.moves(comparison, _largest_size(comparison)):
            by_framework.setdefault(move.framework, move)
        for move in by_framework.values():
            texts.setdefault(move.alternative.backend, []).append(f"{in_percent(move.ratio)} on {names[comparison.name]}")
    changes = [f"{backend} {', '.join(of_backend)}" for backend, of_backend in texts.items()]
    return f"Leaving {leaving_horovod.LIBRARY}, an epoch: {'; '.join(changes)}" if changes else ""

"""The answer as data: who is first, by how much, how sure that is, why, and what to do. The screen, the page and its JSON show it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from common.words import listed, ranks_of
from launch.report import environments
from launch.report.entries import Comparison, Entry
from launch.report.questions import difference, first, step
from launch.report.questions.first import Group, Result
from launch.report.ratio_text import in_percent, runs_against
from launch.report.reliability import advice_on, reliability_of
from launch.report.runs import Runs
from launch.report.statistics import MIN_RUNS_CONFIDENT, Ratio

# A smaller effect explains little.
SMALL = 0.02
# The most workloads that the heading of the causes names, whose values then stand in its order.
MAX_IN_HEADING = 2


class Ranking(NamedTuple):
    """The backends of a workload, in groups by size. Values are seconds to the target where it has one."""

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
        return list(dict.fromkeys(result.backend for group in reversed(self.groups) for result in group.results))

    @property
    def leading_groups(self) -> list[Group]:
        """The group of the largest size at which a backend has a value; none without any group."""
        return first.leading_group(self.groups)


class Cause(NamedTuple):
    """A cause of differences and its evidence; `ratios`: the ratios of seconds per epoch that show it, by comparison."""

    kind: str
    text: str
    ratios: dict[str, Ratio]


class Answer(NamedTuple):
    """The answer from the records of a machine.

    `certainty` says how sure the order is, `causes_at` at which size and on which workloads the causes are, and `reliability` whether the
    runs are sound. `quotation` is the answer in one sentence, for a report or a ticket.
    """

    rankings: list[Ranking]
    certainty: str
    causes: list[Cause]
    causes_at: str
    reliability: list[str]
    advice: list[str]
    quotation: str

    @property
    def has_verdicts(self) -> bool:
        """Whether any backend has as many runs as a verdict needs."""
        return max(_num_runs(self.rankings), default=MIN_RUNS_CONFIDENT) >= MIN_RUNS_CONFIDENT

    @property
    def sentences(self) -> list[str]:
        """A line for each workload, at its most ranks, and one on how sure the order is, first where it may change."""
        lines = [
            f"{ranking.short_name}, {group.name}: {first.sentence(group)}" for ranking in self.rankings for group in ranking.leading_groups
        ]
        certainty = f"{self.certainty[0].upper()}{self.certainty[1:]}."
        return [*lines, certainty] if self.has_verdicts else [certainty, *lines]


def answer_of(runs: Runs) -> Answer:
    """Returns the answer from runs."""
    comparisons = runs.comparisons
    names = short_names(comparisons)
    rankings = [
        Ranking(comparison.name, names[comparison.name], comparison.target, groups)
        for comparison in comparisons
        if (groups := first.groups_of(comparison))
    ]
    sizes = {entry.num_ranks for comparison in comparisons for entry in _at_largest_size(comparison)}
    size = ranks_of(*sizes) if len(sizes) == 1 else ""
    workloads = list(names.values()) if size and len(comparisons) <= MAX_IN_HEADING else []
    completed = [record for entry in runs.entries for record in entry.ok]
    products = [Cause("products", slow.text, {}) for slow in environments.slow_products(completed)]
    causes = [*products, *_factors(comparisons, workloads), *_communication(comparisons)]
    causes_at = f"{size}, on {listed(workloads)}" if workloads else size
    return Answer(
        rankings, _certainty(rankings), causes, causes_at, reliability_of(runs), advice_on(comparisons), _quotation(runs, rankings),
    )  # fmt: skip


def short_names(comparisons: Iterable[Comparison]) -> dict[str, str]:
    """Returns the model of each comparison by the comparison's name, or that name where several have one model."""
    model_of = {comparison.name: comparison.model for comparison in comparisons}
    models = list(model_of.values())
    return {name: model if models.count(model) == 1 else name for name, model in model_of.items()}


def _certainty(rankings: Sequence[Ranking]) -> str:
    """Returns how sure the order of backends is, from the numbers of runs or pairs of their ratios."""
    num_runs = _num_runs(rankings)
    if not num_runs:
        has_epochs = any(result.epoch_seconds for ranking in rankings for group in ranking.groups for result in group.results)
        return "no two times to compare; seconds per epoch are shown" if has_epochs else "nothing to compare"
    fewest, most, each = min(num_runs), max(num_runs), _runs_each(num_runs)
    if most < MIN_RUNS_CONFIDENT:
        return f"{each}: the order may change; --repeats {MIN_RUNS_CONFIDENT} gives a verdict"
    if fewest < MIN_RUNS_CONFIDENT:
        return f"{each}; verdicts by 95 % intervals from {MIN_RUNS_CONFIDENT} on"
    return f"verdicts by 95 % intervals, {each}"


def _runs_each(num_runs: Sequence[int]) -> str:
    fewest, most = min(num_runs), max(num_runs)
    return runs_against(most, most, paired=False) if fewest == most else f"{fewest} to {most} runs each"


def _quotation(runs: Runs, rankings: Sequence[Ranking]) -> str:
    """Returns the answer in one sentence: at which commit, on which machine, who is first at which size, by how much, and how sure."""
    if not rankings:
        return ""
    commits = environments.values_of(runs.compared)["commit"]
    hardware = dict.fromkeys(
        name
        for environment in (record.environment for record in runs.compared)
        for name in (environment.gpu and environment.gpu.model, environments.describe_node(environment))
        if name
    )
    leaders = [f"{_leader(group)} on {ranking.short_name} at {group.name}" for ranking in rankings for group in ranking.leading_groups]
    num_runs = _num_runs(rankings)
    sure = "95 % intervals" if max(num_runs, default=0) >= MIN_RUNS_CONFIDENT else "may change"
    return (
        f"Tandem ({listed(commits)}) on {runs.machine} ({'; '.join(hardware)}), seconds per epoch: {'; '.join(leaders)}"
        f"{f' ({_runs_each(num_runs)}, {sure})' if num_runs else ''}."
    )


def _leader(group: Group) -> str:
    """Returns the fastest backend of a group and by how much it is before the next one."""
    if not group.fastest:
        shortest = next((result.backend for result in group.results if result.epoch_seconds), None)
        return f"no backend reached the target, {shortest} has the shortest epochs" if shortest else "no backend completed"
    if not group.second or not group.second.ratio:
        return f"{group.fastest.backend} alone"
    percent = in_percent(group.second.ratio).removeprefix("+")
    difference = f", with no difference shown ({percent})," if group.second in group.tied else f" by {percent}"
    return f"{group.fastest.backend} before {group.second.backend}{difference}"


def _num_runs(rankings: Iterable[Ranking]) -> list[int]:
    """Returns the number of runs, or of pairs, of each ratio to the fastest."""
    return [result.num_repeats for ranking in rankings for group in ranking.groups for result in group.results if result.ratio]


def _at_largest_size(comparison: Comparison) -> list[Entry]:
    """Returns the entries of the largest size whose ranks have cores of their own; nothing without any."""
    return next(reversed(comparison.by_size().values()), [])


def _factors(comparisons: Sequence[Comparison], workloads: Sequence[str]) -> list[Cause]:
    """Returns a cause for each effect of framework, library or transport at the largest sizes, the largest first.

    Those on all of the workloads that the heading names are in its order.
    """
    ratios_of: dict[tuple[str, str], dict[str, Ratio]] = {}
    names = short_names(comparisons)
    for comparison in comparisons:
        for effect in difference.effects(first.comparable(_at_largest_size(comparison))):
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
    """Returns the cause on the share of a step that communication adds, by workload; none where it is not measured."""
    names = short_names(comparisons)
    exposed = {names[comparison.name]: step.describe_exposed(comparison, _at_largest_size(comparison)) for comparison in comparisons}
    texts = [f"{text} on {workload}" for workload, text in exposed.items() if text]
    return [Cause("step", f"{step.EXPOSED} {'; '.join(texts)}", {})] if texts else []


def as_json(machine: str, answer: Answer) -> str:
    """Returns the answer as JSON text, for scripts; what is not known is null."""
    causes = [
        {
            "kind": kind,
            "text": text,
            "ratios": {name: {"ratio": ratio.value, "interval": _interval(ratio)} for name, ratio in ratios.items()},
        }
        for kind, text, ratios in answer.causes
    ]
    document = {
        "machine": machine,
        "certainty": answer.certainty,
        "comparisons": [_comparison(ranking, group) for ranking in answer.rankings for group in ranking.groups],
        "causes_at": answer.causes_at,
        "causes": causes,
        "reliability": answer.reliability,
        "advice": answer.advice,
        "quotation": answer.quotation,
    }
    return json.dumps(document, indent=1, allow_nan=False)


def _comparison(ranking: Ranking, group: Group) -> dict[str, Any]:
    """Returns a workload at a size: which backend reached the target first, and all backends, the fastest first."""
    return {
        "comparison": ranking.name,
        "num_ranks": group.num_ranks,
        "target": ranking.target,
        "first": group.first and group.first.backend,
        "backends": [_backend(ranking, result) for result in group.results],
    }


def _backend(ranking: Ranking, result: Result) -> dict[str, Any]:
    ratio = result.ratio
    return {
        "backend": result.backend,
        "time_to_solution_seconds" if ranking.has_target else "samples_per_second": result.value,
        "startup_seconds": result.startup_seconds,
        "miss": result.miss,
        "epoch_seconds": result.epoch_seconds,
        "ratio": ratio and ratio.value,
        "interval": ratio and _interval(ratio),
        "num_runs": ratio and result.num_repeats,
        "verdict": result.verdict,
    }


def _interval(ratio: Ratio) -> list[float] | None:
    return None if ratio.low is None or ratio.high is None else [ratio.low, ratio.high]

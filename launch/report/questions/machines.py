"""Which backend is fastest on which machine, by ratios within each; times of different machines are never put together."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from common.record.definition import Record
from common.terminal import filled
from common.words import ranks_of
from launch.report import environments
from launch.report.entries import Comparison
from launch.report.findings import Cells, Findings
from launch.report.questions import first
from launch.report.questions.first import Result
from launch.report.ratio_text import with_interval
from launch.report.runs import Runs

QUESTION = "Which backend is fastest on which machine?"


def answer(runs: Runs) -> Findings:
    """Answers for the comparisons of several machines: ratios to the fastest of each, and how they differ."""
    results_at, machines = results_by_size(runs.comparisons), by_machine(runs.comparisons)
    nothing = [] if results_at else ["No workload and size has two backends with a time on each of two machines, on cores of their own."]
    tables = []
    for name, group in itertools.groupby(results_at.items(), lambda results: results[0][0]):
        rows = [
            row for (_, size), results_on in group for row in _rows(size, {machine: results_on.get(machine, ()) for machine in machines})
        ]
        tables += filled(f"{name}: ratio to fastest", rows)
    causes = [
        f"{machine}: {slow.text}." for machine, of_machine in machines.items() for slow in environments.slow_products(_records(of_machine))
    ]
    sentences = [_sentence(f"{name}, {ranks_of(size)}", results_on) for (name, size), results_on in results_at.items()]
    first_machine, *others = machines
    changes = {other: environments.changes(_records(machines[first_machine]), _records(machines[other])) for other in others}
    differences = [f"From {first_machine} to {other}: {text or 'no difference'}." for other, text in changes.items()]
    return Findings([*nothing, *causes, *sentences, *differences], tables)


def _records(comparisons: Iterable[Comparison]) -> list[Record]:
    return [record for comparison in comparisons for record in comparison.records]


def results_by_size(comparisons: Iterable[Comparison]) -> dict[tuple[str, int], dict[str, list[Result]]]:
    """Returns, by comparison and size, the results on each machine, where two machines or more have two backends or more to compare."""
    results_at: dict[tuple[str, int], dict[str, list[Result]]] = {}
    for comparison in comparisons:
        for size, entries in comparison.by_size().items():
            results = first.results_of(entries)
            if len(_comparable(results)) > 1:
                results_at.setdefault((comparison.name, size), {})[comparison.machine] = results
    return {at: results_on for at, results_on in sorted(results_at.items()) if len(results_on) > 1}


def by_machine(comparisons: Iterable[Comparison]) -> dict[str, list[Comparison]]:
    """Returns the comparisons of each machine."""
    comparisons_on: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        comparisons_on.setdefault(comparison.machine, []).append(comparison)
    return comparisons_on


def _comparable(results: Iterable[Result]) -> list[Result]:
    return [result for result in results if result.is_comparable]


def _sentence(at: str, results_on: Mapping[str, Sequence[Result]]) -> str:
    """Returns the sentence on the fastest backend of each machine, and on those that do not differ from it by their verdict."""
    fastest_on = {
        machine: [result.entry.backend for result in _comparable(results) if result.ratio is None or result.ratio.verdict is False]
        for machine, results in results_on.items()
    }
    texts = [f"on {machine} is {' or '.join(names)}" for machine, names in fastest_on.items()]
    return f"{at}: fastest {'; '.join(texts)}."


def _rows(size: int, results_on: Mapping[str, Iterable[Result]]) -> list[Cells]:
    """Returns a row for each backend of a size, with a column for each machine."""
    texts_on = {machine: {result.entry.backend: _text(result) for result in results} for machine, results in results_on.items()}
    backends = dict.fromkeys(itertools.chain(*texts_on.values()))
    return [
        {"backend": backend, "ranks": size} | {machine: texts.get(backend) for machine, texts in texts_on.items()} for backend in backends
    ]


def _text(result: Result) -> str:
    """Returns the ratio to the fastest on a machine, its interval and the verdict."""
    ratio = with_interval(result.ratio) or "1"
    return f"{ratio}, {result.verdict}" if result.verdict else ratio

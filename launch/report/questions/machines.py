"""Which backend is fastest on which machine, by ratios within each; times of different machines are never put together."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from common.command_line import flag
from common.record.comparison import COMPARED
from common.record.definition import Record
from common.terminal import Table, filled
from common.words import ranks_of
from launch.report import environments
from launch.report.entries import Comparison
from launch.report.questions import first
from launch.report.questions.first import Place
from launch.report.tables import Cells, Findings
from launch.report.words import interval

QUESTION = "Which backend is fastest on which machine?"
# These are shown of each machine, also where they do not differ.
ALWAYS = ("device", "processor", "cores", "GPU", "fastest product")


def answer(comparisons: Sequence[Comparison]) -> tuple[list[str], Findings]:
    """Returns the headline and the findings on the comparisons of several machines: ratios to the fastest of each, and how they differ."""
    standings, machines = standings_of(comparisons), by_machine(comparisons)
    headline = [] if standings else ["No workload and size has two backends with a time on each of two machines, on cores of their own."]
    tables = []
    for name, group in itertools.groupby(standings.items(), lambda standing: standing[0][0]):
        rows = [row for (_, size), placed_on in group for row in _rows(size, {machine: placed_on.get(machine, ()) for machine in machines})]
        tables += filled(f"{name}: ratio to fastest", rows)
    causes = [
        f"{machine}: {sentence}"
        for machine, ran_on in machines.items()
        for sentence in environments.describe_slow_products(_records(ran_on))
    ]
    sentences = [_sentence(f"{name}, {ranks_of(size)}", placed_on) for (name, size), placed_on in standings.items()]
    return headline, Findings([*causes, *sentences], [*tables, *_differences(machines)])


def _records(comparisons: Iterable[Comparison]) -> list[Record]:
    return [record for comparison in comparisons for entry in comparison.entries for record in entry.records]


def standings_of(comparisons: Iterable[Comparison]) -> dict[tuple[str, int], dict[str, list[Place]]]:
    """Returns, by comparison and size, the places on each machine, where two machines or more have two backends or more to compare."""
    standings: dict[tuple[str, int], dict[str, list[Place]]] = {}
    for machine, compared_on in by_machine(comparisons).items():
        for comparison, size in [(compared, size) for compared in compared_on for size in compared.sizes]:
            placed = first.places(comparison.of_size(size, oversubscribed=False))
            if len(_comparable(placed)) > 1:
                standings.setdefault((comparison.name, size), {})[machine] = placed
    return {at: placed_on for at, placed_on in sorted(standings.items()) if len(placed_on) > 1}


def by_machine(comparisons: Iterable[Comparison]) -> dict[str, list[Comparison]]:
    """Returns the comparisons of each machine."""
    compared_on: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        compared_on.setdefault(environments.machine_of(comparison.entries[0].records[0]), []).append(comparison)
    return compared_on


def _comparable(placed: Iterable[Place]) -> list[Place]:
    return [place for place in placed if not place.is_apart]


def _sentence(at: str, placed_on: Mapping[str, Sequence[Place]]) -> str:
    """Returns the sentence on the fastest backend of each machine, and on those that do not differ from it by their verdict."""
    fastest_on = {
        machine: [place.entry.backend for place in _comparable(placed) if place.against is None or place.against.verdict is False]
        for machine, placed in placed_on.items()
    }
    texts = [f"on {machine} is {' or '.join(names)}" for machine, names in fastest_on.items()]
    return f"{at}: fastest {'; '.join(texts)}."


def _rows(size: int, placed_on: Mapping[str, Iterable[Place]]) -> list[Cells]:
    """Returns a row for each backend of a size, with a column for each machine."""
    cells_on = {machine: {place.entry.backend: _cell(place) for place in placed} for machine, placed in placed_on.items()}
    backends = dict.fromkeys(itertools.chain(*cells_on.values()))
    return [
        {"backend": backend, "ranks": size} | {machine: cells.get(backend) for machine, cells in cells_on.items()} for backend in backends
    ]


def _cell(place: Place) -> str:
    """Returns the ratio to the fastest on a machine, its interval and the verdict."""
    ratio = f"{place.against.value:.2f}" if place.against else "1"
    uncertain = f" ({interval(place.against)})" if interval(place.against) else ""
    return f"{ratio}{uncertain}, {place.verdict}" if place.verdict else f"{ratio}{uncertain}"


def _differences(machines: Mapping[str, Sequence[Comparison]]) -> list[Table]:
    """Returns the table of ALWAYS, and of the versions and settings that differ between machines."""
    texts_of = {}
    for machine, comparisons in machines.items():
        records = _records(comparisons)
        values_of = (
            {"fastest product": environments.describe_limits(records)}
            | {"device": _texts(records, environments.device_of)}
            | environments.values_of(records)
        )
        values_of |= {flag(name): _texts(records, attrgetter(f"settings.{name}")) for name in COMPARED}
        texts_of[machine] = {name: ", ".join(values) or None for name, values in values_of.items()}
    names = dict.fromkeys(itertools.chain(*texts_of.values()))
    rows = [{"what": name} | {machine: texts.get(name) for machine, texts in texts_of.items()} for name in names]
    shown = [row for row in rows if row["what"] in ALWAYS or len({text for name, text in row.items() if name != "what"}) > 1]
    return filled("The machines", [row for row in shown if any(row[machine] for machine in machines)])


def _texts(records: Iterable[Record], value_of: Callable[[Record], Any]) -> list[str]:
    return sorted({str(value) for record in records if (value := value_of(record)) is not None})

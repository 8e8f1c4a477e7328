"""Which backend is fastest on which machine, by ratios within each; times of different machines are never put together."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from common.command_line import flag
from common.record.definition import Record
from launch.report import comparable, environments, limits
from launch.report.entries import Comparison
from launch.report.questions import first
from launch.report.questions.first import Place
from launch.report.statistics import MIN_RUNS_CONFIDENT
from launch.report.tables import BACKEND, RANKS, Column, Findings, Table, filled
from launch.report.words import interval, listed, ranks_of

QUESTION = "Which backend is fastest on which machine?"
IS_SAME = {True: "yes", False: "no", None: "not decided"}
# These are shown of each machine, also where they do not differ.
ALWAYS = ("device", "processor", "cores", "GPU", "fastest product")


class Row(NamedTuple):
    """A backend at a size, with its place on each machine that has one."""

    num_ranks: int
    backend: str
    place_on: dict[str, Place]


class Difference(NamedTuple):
    """A property of machines, with its value on each."""

    name: str
    values: dict[str, str | None]


def answer(comparisons: Sequence[Comparison]) -> tuple[list[str], Findings]:
    """Returns the headline and the findings on the comparisons of several machines: ratios to the fastest of each, and how they differ."""
    standings, machines = standings_of(comparisons), by_machine(comparisons)
    judgements = [_sentence(f"{name}, {ranks_of(size)}", placed_on) for (name, size), placed_on in standings.items()]
    counts = Counter(is_same for is_same, _ in judgements)
    headline = f"Is the same backend fastest on {listed(list(machines))}? {_counted(counts)} of {len(judgements)} workloads and sizes."
    if not judgements:
        headline = "No workload and size has two backends with a time on each of two machines, on cores of their own."
    tables = []
    for name, group in itertools.groupby(standings.items(), lambda standing: standing[0][0]):
        rows = [row for (_, size), placed_on in group for row in _rows(size, placed_on)]
        columns = (RANKS, BACKEND, *(Column(machine, partial(_cell, machine)) for machine in machines))
        tables += filled(f"{name}: ratio to fastest", columns, rows)
    causes = [f"{machine}: {sentence}" for machine, ran_on in machines.items() for sentence in limits.low_shares(_records(ran_on))]
    sentences = [*_of_one_name(machines), *causes, *(sentence for _, sentence in judgements)]
    return [headline], Findings(sentences, [*tables, *_differences(machines)])


def _of_one_name(machines: Mapping[str, Sequence[Comparison]]) -> Iterator[str]:
    """Yields a sentence on each two machines whose processors have one name, but another speed."""
    records_on = {machine: _records(comparisons) for machine, comparisons in machines.items()}
    for names in itertools.combinations(records_on, 2):
        processors, other_processors = (environments.values_of(records_on[name])["processor"] for name in names)
        if processors == other_processors and (apart := limits.apart(*(records_on[name] for name in names))):
            yield f"{listed(names)} are different machines with one name of their processors, {', '.join(processors)}: {apart}."


def _records(comparisons: Iterable[Comparison]) -> list[Record]:
    return [record for comparison in comparisons for entry in comparison.entries for record in entry.records]


def _counted(counts: Mapping[bool | None, int]) -> str:
    return ", ".join(f"{IS_SAME[is_same]} for {counts[is_same]}" for is_same in IS_SAME if counts[is_same]).capitalize()


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
        compared_on.setdefault(comparable.machine_of(comparison.entries[0].records[0]), []).append(comparison)
    return compared_on


def _comparable(placed: Iterable[Place]) -> list[Place]:
    return [place for place in placed if not place.is_apart]


def _sentence(at: str, placed_on: Mapping[str, Sequence[Place]]) -> tuple[bool | None, str]:
    """Returns whether one backend is fastest on all machines, None where the intervals leave it open, and a sentence on it."""
    compared_on = {machine: _comparable(placed) for machine, placed in placed_on.items()}
    if any(place.against and place.against.verdict is None for placed in compared_on.values() for place in placed[1:]):
        lowest = [f"{placed[0].entry.backend} on {machine}" for machine, placed in compared_on.items()]
        return None, f"{at}: the lowest time so far has {listed(lowest)}; a verdict takes {MIN_RUNS_CONFIDENT} repeats on each."
    # These are the backends that the intervals do not show to be slower than the fastest.
    first_on = {
        machine: [place.entry.backend for place in placed if place.against is None or not place.against.verdict]
        for machine, placed in compared_on.items()
    }
    timed_on = {machine: {place.entry.backend for place in placed} for machine, placed in placed_on.items()}
    possible = [
        backend for backend in dict.fromkeys(itertools.chain(*first_on.values()))
        if all(backend in names or backend not in timed_on[machine] for machine, names in first_on.items())
    ]  # fmt: skip
    if possible and all(names == possible for names in first_on.values()) and len(possible) == 1:
        return True, f"{at}: {possible[0]} is fastest on {listed(list(first_on))}."
    winners = "; ".join(f"on {machine} {' or '.join(names)}" for machine, names in first_on.items())
    if not possible:
        return False, f"{at}: no backend is fastest on all machines: {winners}."
    return (
        None,
        f"{at}: the intervals leave open whether one backend is fastest on all machines; {' or '.join(possible)} may be: {winners}.",
    )


def _rows(size: int, placed_on: Mapping[str, Sequence[Place]]) -> list[Row]:
    """Returns a row for each backend of a size."""
    places = {machine: {place.entry.backend: place for place in placed} for machine, placed in placed_on.items()}
    backends = dict.fromkeys(itertools.chain(*places.values()))
    return [
        Row(size, backend, {machine: place_of[backend] for machine, place_of in places.items() if backend in place_of})
        for backend in backends
    ]


def _cell(machine: str, row: Row) -> str | None:
    """Returns the ratio to the fastest on a machine, its interval and the verdict; None where the backend has no place there."""
    place = row.place_on.get(machine)
    if place is None:
        return None
    ratio = f"{place.against.value:.2f}" if place.against else "1"
    uncertain = f" ({interval(place.against)})" if interval(place.against) else ""
    return f"{ratio}{uncertain}, {place.verdict}" if place.verdict else f"{ratio}{uncertain}"


def _differences(machines: Mapping[str, Sequence[Comparison]]) -> list[Table]:
    """Returns the table of ALWAYS, and of the versions and settings that differ between machines."""
    texts_of = {}
    for machine, comparisons in machines.items():
        records = _records(comparisons)
        values_of = (
            {"fastest product": limits.describe(records)}
            | {"device": _texts(records, comparable.device_of)}
            | environments.values_of(records)
        )
        values_of |= {flag(field.name): _texts(records, attrgetter(f"settings.{field.name}")) for field in comparable.COMPARED}
        texts_of[machine] = {name: ", ".join(values) or None for name, values in values_of.items()}
    names = dict.fromkeys(itertools.chain(*texts_of.values()))
    differences = [Difference(name, {machine: texts.get(name) for machine, texts in texts_of.items()}) for name in names]
    shown = [
        difference
        for difference in differences
        if any(difference.values.values()) and (difference.name in ALWAYS or len(set(difference.values.values())) > 1)
    ]
    columns = (Column("what", attrgetter("name")), *(Column(machine, partial(_value, machine)) for machine in machines))
    return filled("The machines", columns, shown)


def _value(machine: str, difference: Difference) -> str | None:
    return difference.values[machine]


def _texts(records: Iterable[Record], value_of: Callable[[Record], Any]) -> list[str]:
    return sorted({str(value) for record in records if (value := value_of(record)) is not None})

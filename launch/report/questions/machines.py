"""Which backend is fastest on which machine, by ratios within each; times of different machines are never put together. Pure."""

import itertools
from collections import Counter
from operator import attrgetter

from common.command_line import flag
from launch.report import comparable, environments
from launch.report.questions import first
from launch.report.statistics import MIN_RUNS_CONFIDENT
from launch.report.tables import BACKEND, RANKS, Column, Table, filled
from launch.report.words import interval, listed, ranks_of

QUESTION = "Which backend is fastest on which machine?"
IS_SAME = {True: "yes", False: "no", None: "open"}
# What is shown of each machine, also where it does not differ.
ALWAYS = ("device", "processor", "cores", "GPU")


def answer(comparisons):
    """(headline, sentences, tables) of the Comparisons of several machines: ratios to the fastest of each, and how they differ."""
    standings, machines = standings_of(comparisons), _machines(comparisons)
    judgements = [_sentence(f"{name}, {ranks_of(size)}", placed_on) for (name, size), placed_on in standings.items()]
    counts = Counter(is_same for is_same, _ in judgements)
    headline = f"Is one backend fastest on {listed(list(machines))}? Of {len(judgements)} workloads and sizes: {_counted(counts)}."
    if not judgements:
        headline = "No workload and size has two backends with a time on each of two machines, on cores of their own."
    tables = []
    for name, group in itertools.groupby(standings.items(), lambda standing: standing[0][0]):
        rows = [row for (_, size), placed_on in group for row in _rows(size, placed_on, machines)]
        tables += filled(f"{name}: ratio to fastest", (RANKS, BACKEND, *map(Column, machines)), rows)
    return [headline], [sentence for _, sentence in judgements], [*tables, _differences(machines)]


def _counted(counts):
    return ", ".join(f"{IS_SAME[is_same]} at {counts[is_same]}" for is_same in IS_SAME if counts[is_same])


def standings_of(comparisons):
    """{(comparison, size): {machine: its first.Places}} where two machines or more have two backends or more to compare."""
    standings = {}
    for machine, of_machine in _machines(comparisons).items():
        for comparison, size in [(compared, size) for compared in of_machine for size in compared.sizes]:
            placed = first.places(comparison.of_size(size, oversubscribed=False))
            if len(_comparable(placed)) > 1:
                standings.setdefault((comparison.name, size), {})[machine] = placed
    return {at: placed_on for at, placed_on in sorted(standings.items()) if len(placed_on) > 1}


def _machines(comparisons):
    """{machine: its Comparisons}."""
    by_machine = {}
    for comparison in comparisons:
        by_machine.setdefault(comparison.entries[0].records[0].settings.machine, []).append(comparison)
    return by_machine


def _comparable(placed):
    return [place for place in placed if not place.is_apart]


def _sentence(at, placed_on):
    """(whether one backend is fastest on all machines, None where the intervals of each leave it open; a sentence on it)."""
    compared_on = {machine: _comparable(placed) for machine, placed in placed_on.items()}
    if any(place.against.verdict is None for _, *later in compared_on.values() for place in later):
        lowest = [f"{placed[0].entry.backend} on {machine}" for machine, placed in compared_on.items()]
        return None, f"{at}: the lowest time so far has {listed(lowest)}; a verdict takes {MIN_RUNS_CONFIDENT} repeats on each."
    # Those that the intervals do not show to be slower than the fastest.
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
    by_machine = "; ".join(f"on {machine} {' or '.join(names)}" for machine, names in first_on.items())
    if not possible:
        return False, f"{at}: no backend is fastest on all machines: {by_machine}."
    return (
        None,
        f"{at}: the intervals leave open whether one backend is fastest on all machines; {' or '.join(possible)} may be: {by_machine}.",
    )


def _rows(size, placed_on, machines):
    """A row for each backend of a size, with its ratio on each machine."""
    places = {machine: {place.entry.backend: place for place in placed} for machine, placed in placed_on.items()}
    backends = dict.fromkeys(itertools.chain(*places.values()))
    return [(size, backend, *(_cell(places.get(machine, {}).get(backend)) for machine in machines)) for backend in backends]


def _cell(place):
    if place is None:
        return None
    ratio = f"{place.against.value:.2f}" if place.against else "1"
    uncertain = f" ({interval(place.against)})" if interval(place.against) else ""
    return f"{ratio}{uncertain}, {place.verdict}" if place.verdict else f"{ratio}{uncertain}"


def _differences(machines):
    """The table of ALWAYS, and of the versions and settings that differ between machines."""
    texts_of = {}
    for machine, comparisons in machines.items():
        records = [record for comparison in comparisons for entry in comparison.entries for record in entry.records]
        values_of = {"device": _texts(records, comparable.device_of)} | environments.values_of(records)
        values_of |= {flag(field.name): _texts(records, attrgetter(f"settings.{field.name}")) for field in comparable.COMPARED}
        texts_of[machine] = {name: ", ".join(values) or None for name, values in values_of.items()}
    names = dict.fromkeys(itertools.chain(*texts_of.values()))
    rows = [(name, *(texts.get(name) for texts in texts_of.values())) for name in names]
    shown = [row for row in rows if any(row[1:]) and (row[0] in ALWAYS or len(set(row[1:])) > 1)]
    return Table("The machines", (Column("what"), *map(Column, machines)), shown)


def _texts(records, value_of):
    return sorted({str(value) for record in records if (value := value_of(record)) is not None})

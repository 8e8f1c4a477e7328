"""Records -> entries: all runs of one backend at one size, which the report compares. Pure."""

from typing import NamedTuple

from common.errors import UserError
from launch.plan import BASELINE
from launch.report import statistics


class Entry(NamedTuple):
    """The repeats of one backend at a number of ranks, as records in the order of their keys (matrix, repeat)."""

    backend: str
    ranks: int
    runs: tuple[dict, ...]

    @property
    def ok(self):
        return [run for run in self.runs if run["status"] == "ok"]

    @property
    def whole(self):
        """The runs that came to their end and have all of their training in their records: none that went on from a snapshot."""
        return [run for run in self.ok if not run.get("resumed_after_epochs")]

    @property
    def oversubscribed(self):
        return any(run["oversubscribed"] for run in self.runs)


class Comparison(NamedTuple):
    """All entries of one workload under one kind of scaling; `target` is None where it is for throughput alone."""

    workload: str
    scaling: str
    target: float | None
    entries: tuple[Entry, ...]

    @property
    def name(self):
        return f"{self.workload}, {self.scaling} scaling"

    def entry(self, backend, ranks):
        """The entry, or None."""
        return next((entry for entry in self.entries if (entry.backend, entry.ranks) == (backend, ranks)), None)


def divided(found):
    """(plain, traced): records of runs that may be compared, and of those that were slower for being traced or having a timeline.

    Raises UserError where there are only such.
    """
    plain, traced = [], []
    for record in found:
        (traced if record["settings"].get("timeline") or record["settings"].get("trace") else plain).append(record)
    if traced and not plain:
        raise UserError("all of these runs were traced (--timeline, --trace), which makes them slower; compare runs that were not")
    return plain, traced


def comparisons(found):
    """The comparisons that records make, by name; the entries of each with the baseline first, then by backend and size."""
    groups = {}
    for record in found:
        groups.setdefault((record["workload"], record["scaling"]), {}).setdefault((record["backend"], record["ranks"]), []).append(record)
    made = []
    for (workload, scaling), cells in sorted(groups.items()):
        order = sorted(cells, key=lambda cell: (cell[0] != BASELINE, cell))
        entries = tuple(Entry(*cell, tuple(sorted(cells[cell], key=key_of))) for cell in order)
        targets = [run["target"] for entry in entries for run in entry.runs]
        made.append(Comparison(workload, scaling, next((target for target in targets if target is not None), None), entries))
    return made


def key_of(record):
    """(matrix, repeat): runs of different backends that have the same ran one soon after the other, and are a pair."""
    run_id = record["settings"]["run_id"] or ""
    return run_id.partition(f"-{record['workload']}-{record['backend']}-n")[0], record["repeat"]


def times(entry):
    """The time to solution of each run, in seconds; None where it did not reach the target, failed, or went on from a snapshot."""
    return [run["time_to_solution_seconds"] if run["status"] == "ok" else None for run in entry.runs]


def counted_times(entry):
    """The times as statistics.counted has them; None for an entry that is not there or not valid."""
    return entry and statistics.counted(times(entry))


def misses(entry):
    """What became of each run that has no time to solution, in words; nothing for runs without a target."""
    return [
        run["status"] if run["status"] != "ok" else "resumed" if run["reached"] else "not reached"
        for run, time in zip(entry.runs, times(entry), strict=True)
        if time is None and (run["status"] != "ok" or run["reached"] is not None)
    ]


def values(entry, key):
    """What the runs that came to their end have under a key, without what is not known."""
    return [run[key] for run in entry.ok if run.get(key) is not None]


def typical(entry, key):
    """The typical value of what the runs have under a key, or None."""
    found = values(entry, key)
    return float(statistics.typical(found)) if found else None


def time_of(entry):
    """The entry's time to solution in seconds; None for an entry that is not there or not valid."""
    found = counted_times(entry)
    return float(statistics.typical(found)) if found else None


def time_ratio(above, below):
    """The Ratio of the times to solution of two entries; None where one of them has no time."""
    found = counted_times(above), counted_times(below)
    return statistics.ratio(*found, paired=_are_pairs(above.runs, below.runs)) if all(found) else None


def value_ratio(above, below, key):
    """The Ratio of what two entries have under a key; None where one of them has nothing."""
    if not (above and below and values(above, key) and values(below, key)):
        return None
    runs = [[run for run in entry.ok if run.get(key) is not None] for entry in (above, below)]
    return statistics.ratio(*([run[key] for run in side] for side in runs), paired=_are_pairs(*runs))


def _are_pairs(runs, others):
    keys = [key_of(run) for run in runs]
    return len(set(keys)) == len(keys) and keys == [key_of(run) for run in others]

"""Records -> entries: all runs of one backend at one number of ranks. Pure."""

from typing import NamedTuple

from common.backends import BASELINE
from common.errors import UserError
from launch.report import epochs, statistics

# Settings of runs that are never compared.
NOT_COMPARED = ("timeline", "trace", "share_gpu")
SLOWED_DOWN = "traced or shared a GPU (--timeline, --trace, --share-gpu)"


class Entry(NamedTuple):
    """The repeats of one backend at one number of ranks: records in the order of their keys (matrix, repeat)."""

    backend: str
    num_ranks: int
    runs: tuple[dict, ...]

    @property
    def ok(self):
        return [run for run in self.runs if run["status"] == "ok"]

    @property
    def from_start(self):
        """The completed runs whose records hold all of the training: those not resumed from a checkpoint."""
        return [run for run in self.ok if not run.get("resumed_after_epochs")]

    @property
    def exact(self):
        """Whether the backend trains what plain PyTorch does, up to rounding; None in a record: it is older, and all did."""
        return all(run.get("exact") is not False for run in self.runs)

    @property
    def batch_ratio(self):
        """The global batch over --batch-size: under weak scaling the data-parallel degree, else 1. Equal ones train the same."""
        run = self.runs[0]
        return (run.get("data_parallel_degree") or self.num_ranks) if run["scaling"] == "weak" else 1

    @property
    def transport(self):
        """What the gradients went over, the same in all runs; None where no record has it."""
        return next((transport for run in self.runs if (transport := run.get("transport"))), None)

    @property
    def oversubscribed(self):
        return any(run["oversubscribed"] for run in self.runs)


class Comparison(NamedTuple):
    """All entries of one workload under one kind of scaling, whose data was read in one way; `target` is None for a workload without one.

    `reading`: see `reading_of`.
    """

    workload: str
    scaling: str
    target: float | None
    entries: tuple[Entry, ...]
    reading: str = ""

    @property
    def precision(self):
        """The same in all runs."""
        return self.entries[0].runs[0]["settings"]["precision"]

    @property
    def training(self):
        """The workload, precision and scaling, however the data was read."""
        precision = "" if self.precision == "fp32" else f" in {self.precision}"
        return f"{self.workload}{precision}, {self.scaling} scaling"

    @property
    def name(self):
        return f"{self.training}, {self.reading}" if self.reading else self.training

    def of_size(self, num_ranks, oversubscribed=None):
        """The entries of a size; those that are oversubscribed or not, if given."""
        return [entry for entry in self.entries if entry.num_ranks == num_ranks and oversubscribed in (None, entry.oversubscribed)]

    def entry(self, backend, num_ranks):
        """The entry, or None."""
        return next((entry for entry in self.entries if (entry.backend, entry.num_ranks) == (backend, num_ranks)), None)


def split_traced(found):
    """(plain, others): records of runs that may be compared, and of runs slowed down by tracing, a timeline or a shared GPU.

    Raises UserError where there are only traced ones.
    """
    plain, others = [], []
    for record in found:
        (others if any(record["settings"].get(name) for name in NOT_COMPARED) else plain).append(record)
    if others and not plain:
        raise UserError(f"all of these runs were {SLOWED_DOWN}; compare runs that were not")
    return plain, others


def comparisons(found):
    """The Comparisons of records, by name; entries are ordered by baseline first, then backend and size."""
    groups = {}
    for record in found:
        groups.setdefault(group_of(record), {}).setdefault((record["backend"], record["num_ranks"]), []).append(record)
    made = []
    for (workload, scaling, reading), cells in sorted(groups.items()):
        order = sorted(cells, key=lambda cell: (cell[0] != BASELINE, cell))
        entries = tuple(Entry(*cell, tuple(sorted(cells[cell], key=key_of))) for cell in order)
        targets = [run["target"] for entry in entries for run in entry.runs]
        made.append(Comparison(workload, scaling, next((target for target in targets if target is not None), None), entries, reading))
    return made


def group_of(record):
    """The workload, scaling and way of reading the data of a record. Those that are equal in them are compared."""
    return record["workload"], record["scaling"], reading_of(record["settings"])


def reading_of(settings):
    """How a run's data was read from disk, in words; empty for data in memory. Runs that differ in it are compared apart."""
    data_format, num_workers = settings.get("data_format", "memory"), settings.get("num_workers", 0)
    if data_format == "memory":
        return ""
    ahead = f", {num_workers} worker{'' if num_workers == 1 else 's'} of {settings['prefetch']} batches" if num_workers else ""
    dropped = {"none": "", "once": ", caches dropped", "epoch": ", caches dropped in every epoch"}[settings["drop_caches"]]
    return f"{data_format}{ahead}{dropped}"


def key_of(record):
    """(matrix, repeat): runs of different backends with the same key ran close together in time and form a pair."""
    run_id = record["settings"]["run_id"] or ""
    return run_id.partition(f"-{record['workload']}-{record['backend']}-n")[0], record["repeat"]


def times(entry):
    """The time to solution of each run, in seconds; None where it missed the target, failed, or was resumed from a checkpoint."""
    return [run["time_to_solution_seconds"] if run["status"] == "ok" else None for run in entry.runs]


def scored_times(entry):
    """The times as statistics.scored gives them; None for a missing or invalid entry."""
    return entry and statistics.scored(times(entry))


def misses(entry):
    """The status of each run without a time to solution; empty for workloads without a target."""
    return [
        run["status"] if run["status"] != "ok" else "resumed" if run["reached"] else "not reached"
        for run, time in zip(entry.runs, times(entry), strict=True)
        if time is None and (run["status"] != "ok" or run["reached"] is not None)
    ]


def values(entry, key):
    """The known values of a record key over the completed runs."""
    return [run[key] for run in entry.ok if run.get(key) is not None]


def typical(entry, key):
    """The typical value of a record key over the completed runs, or None."""
    found = values(entry, key)
    return float(statistics.typical(found)) if found else None


def time_of(entry):
    """The entry's time to solution in seconds; None for a missing or invalid entry."""
    found = scored_times(entry)
    return float(statistics.typical(found)) if found else None


def time_ratio(above, below):
    """The Ratio of the times to solution of two entries; None where either has no time."""
    found = scored_times(above), scored_times(below)
    return statistics.ratio(*found, paired=_are_pairs(above.runs, below.runs)) if all(found) else None


def epoch_seconds(entry):
    """The geometric mean of the seconds per epoch of an entry's runs, or None."""
    found = [seconds for run in entry.from_start if (seconds := epochs.seconds(run))]
    return statistics.geometric_mean(found) if found else None


def epoch_ratio(above, below, num_compared):
    """The Ratio of the seconds per epoch of two entries, one of all pairs among `num_compared`; None where either has none.

    Runs with the same key are pairs, and where there are pairs only they count. Of a pair the epochs count that both have trained: of
    runs side by side these had their turns one after the other.
    """
    sides = [{key_of(run): run for run in entry.from_start if epochs.seconds(run)} for entry in (above, below)]
    shared = [key for key in sides[0] if key in sides[1]]
    if len(shared) > 1:
        both = [[side[key] for side in sides] for key in shared]
        num_epochs = [min(len(run["train_seconds"]) for run in pair) for pair in both]
        chosen = [[epochs.seconds(pair[side], num) for pair, num in zip(both, num_epochs, strict=True)] for side in (0, 1)]
    else:
        chosen = [[epochs.seconds(run) for run in side.values()] for side in sides]
    if not all(chosen):
        return None
    paired = len(shared) > 1 or (len(shared) == 1 and len(chosen[0]) == len(chosen[1]) == 1)
    return statistics.simultaneous_ratio(*chosen, paired=paired, num_compared=num_compared)


def value_ratio(above, below, key):
    """The Ratio of a record key of two entries; None where either has no value."""
    if not (above and below and values(above, key) and values(below, key)):
        return None
    runs = [[run for run in entry.ok if run.get(key) is not None] for entry in (above, below)]
    return statistics.ratio(*([run[key] for run in side] for side in runs), paired=_are_pairs(*runs))


def _are_pairs(runs, others):
    keys = [key_of(run) for run in runs]
    return len(set(keys)) == len(keys) and keys == [key_of(run) for run in others]

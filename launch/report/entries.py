"""Records -> entries: all runs of one backend at one number of ranks. Pure."""

import itertools
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from common.backends import BASELINE
from common.command_line import flag
from common.config import Role, with_role
from common.errors import UserError
from common.record.definition import Record
from launch.report import epochs, statistics

NOT_COMPARED = with_role(Role.NOT_COMPARED)
SLOWED_DOWN = f"traced or shared a GPU ({', '.join(map(flag, NOT_COMPARED))})"


class Entry(NamedTuple):
    """The repeats of one backend at one number of ranks: records in the order of their keys (matrix, repeat)."""

    backend: str
    num_ranks: int
    records: tuple[Record, ...]

    @property
    def ok(self):
        return [record for record in self.records if record.status == "ok"]

    @property
    def from_start(self):
        """The completed runs whose records hold all of the training: those not resumed from a checkpoint."""
        return [record for record in self.ok if not record.resumed_after_epochs]

    @property
    def exact(self):
        """Whether the backend trains what plain PyTorch does, up to rounding."""
        return all(record.exact for record in self.records)

    @property
    def batch_ratio(self):
        """The global batch over --batch-size: under weak scaling the data-parallel degree, else 1. Equal ones train the same."""
        return self.records[0].data_parallel_degree if self.records[0].scaling == "weak" else 1

    @property
    def transport(self):
        """What the gradients went over, the same in all runs; None where no record has it."""
        return next((transport for record in self.records if (transport := record.transport)), None)

    @property
    def oversubscribed(self):
        return any(record.oversubscribed for record in self.records)


class Comparison(NamedTuple):
    """All entries of one workload under one kind of scaling, whose data was read in one way (`reading_of`)."""

    workload: str
    scaling: str
    reading: str
    entries: tuple[Entry, ...]

    @property
    def target(self):
        """The accuracy to reach; None for a workload without one."""
        return next((record.target for entry in self.entries for record in entry.records if record.target is not None), None)

    @property
    def precision(self):
        """The precision, which is the same in all runs."""
        return self.entries[0].records[0].settings.precision

    @property
    def training(self):
        """The workload, precision and scaling, however the data was read."""
        precision = "" if self.precision == "fp32" else f" in {self.precision}"
        return f"{self.workload}{precision}, {self.scaling} scaling"

    @property
    def name(self):
        return f"{self.training}, {self.reading}" if self.reading else self.training

    @property
    def sizes(self):
        return sorted({entry.num_ranks for entry in self.entries})

    def of_size(self, num_ranks, oversubscribed=None):
        """The entries of a size; those that are oversubscribed or not, if given."""
        return [entry for entry in self.entries if entry.num_ranks == num_ranks and oversubscribed in (None, entry.oversubscribed)]

    def entry(self, backend, num_ranks):
        """The entry, or None."""
        return next((entry for entry in self.entries if (entry.backend, entry.num_ranks) == (backend, num_ranks)), None)


def split_traced(records):
    """(plain, slowed_down): records of runs that may be compared, and of runs slowed down by tracing, a timeline or a shared GPU.

    Raises UserError where there are only traced ones.
    """
    plain, slowed_down = [], []
    for record in records:
        (slowed_down if any(getattr(record.settings, name) for name in NOT_COMPARED) else plain).append(record)
    if slowed_down and not plain:
        raise UserError(f"all of these runs were {SLOWED_DOWN}; compare runs that were not")
    return plain, slowed_down


def comparisons(records):
    """The Comparisons of records, by name; entries are ordered by baseline first, then backend and size."""
    cell_of = attrgetter("backend", "num_ranks")
    ordered = sorted(records, key=lambda record: (group_of(record), record.backend != BASELINE, cell_of(record), key_of(record)))
    compared = []
    for group, records_of_group in itertools.groupby(ordered, group_of):
        cells = itertools.groupby(records_of_group, cell_of)
        compared.append(Comparison(*group, tuple(Entry(*cell, tuple(records_of_cell)) for cell, records_of_cell in cells)))
    return compared


def group_of(record):
    """The workload, scaling and way of reading the data of a record. Those that are equal in them are compared."""
    return record.workload, record.scaling, reading_of(record.settings)


def reading_of(settings):
    """How a run's data was read from disk, in words; empty for data in memory. Runs that differ in it are compared apart."""
    if settings.data_format == "memory":
        return ""
    workers = "1 worker" if settings.num_workers == 1 else f"{settings.num_workers} workers"
    ahead = f", {workers} of {settings.prefetch} batches" if settings.num_workers else ""
    dropped = {"none": "", "once": ", caches dropped", "epoch": ", caches dropped in every epoch"}[settings.drop_caches]
    return f"{settings.data_format}{ahead}{dropped}"


def key_of(record):
    """(matrix, repeat): runs of different backends with the same key ran close together in time and form a pair."""
    run_id = record.settings.run_id or ""
    return run_id.partition(f"-{record.workload}-{record.backend}-n")[0], record.repeat


def matrices(records):
    """{matrix: its records}, matrices and records in the order in which they began."""
    by_matrix = {}
    for record in sorted(records, key=lambda record: record.started_at):
        by_matrix.setdefault(key_of(record)[0], []).append(record)
    return by_matrix


def times(entry):
    """The time to solution of each run, in seconds; None where it missed the target, failed, or was resumed from a checkpoint."""
    return [record.time_to_solution_seconds if record.status == "ok" else None for record in entry.records]


def scored_times(entry):
    """The times of an entry as statistics.scored gives them; None for a missing or invalid entry."""
    return entry and statistics.scored(times(entry))


def misses(entry):
    """The status of each run without a time to solution; empty for workloads without a target."""
    return [
        record.status if record.status != "ok" else "resumed" if record.reached else "not reached"
        for record, time in zip(entry.records, times(entry), strict=True)
        if time is None and (record.status != "ok" or record.reached is not None)
    ]


def typical(entry, key):
    """The typical value of a record key over the completed runs, or None."""
    return statistics.typical_or_none(getattr(record, key) for record in entry.ok)


def time_of(entry):
    """The entry's time to solution in seconds; None for a missing or invalid entry."""
    scored = scored_times(entry)
    return float(statistics.typical(scored)) if scored else None


def time_with_startup(entry):
    """The seconds from the start of the launcher to the target, typical as in `time_of`; None where not known, as outside a matrix."""
    startup = [(record.launch_seconds, record.import_seconds, record.init_seconds) for record in entry.records]
    scored = statistics.scored(
        [None if None in (time, *stages) else time + sum(stages) for time, stages in zip(times(entry), startup, strict=True)]
    )
    return float(statistics.typical(scored)) if scored else None


def time_ratio(above, below):
    """The Ratio of the times to solution of two entries; None where either has no time."""
    scored = scored_times(above), scored_times(below)
    return statistics.ratio(*scored, paired=_are_pairs(above.records, below.records)) if all(scored) else None


def epoch_seconds(entry):
    """The geometric mean of the seconds per epoch of an entry's runs, or None."""
    by_record = [seconds for record in entry.from_start if (seconds := epochs.seconds(record))]
    return statistics.geometric_mean(by_record) if by_record else None


def epoch_interval(entry):
    """The geometric mean of the seconds per epoch of an entry's runs, as a Ratio to 1 second with its interval; None without any."""
    by_record = [seconds for record in entry.from_start if (seconds := epochs.seconds(record))]
    return statistics.simultaneous_ratio(by_record, [1.0] * len(by_record), paired=True, num_compared=2) if by_record else None


def epoch_ratio(above, below, compared):
    """The Ratio of the seconds per epoch of two entries, one of all pairs of the entries `compared`; None where either has none.

    Runs with the same key are pairs, and where there are pairs only they count. Of a pair the epochs count that both have trained: of
    runs side by side these had their turns one after the other.
    """
    sides = [{key_of(record): record for record in entry.from_start if epochs.seconds(record)} for entry in (above, below)]
    shared = [key for key in sides[0] if key in sides[1]]
    if len(shared) > 1:
        pairs = [[side[key] for side in sides] for key in shared]
        num_epochs = [min(len(record.train_seconds) for record in pair) for pair in pairs]
        chosen = [[epochs.seconds(pair[side], num) for pair, num in zip(pairs, num_epochs, strict=True)] for side in (0, 1)]
    else:
        chosen = [[epochs.seconds(record) for record in side.values()] for side in sides]
    if not all(chosen):
        return None
    paired = len(shared) > 1 or (len(shared) == 1 and len(chosen[0]) == len(chosen[1]) == 1)
    noise = _session_noise(sorted({matrix for matrix, _ in shared}), compared)
    until_narrow = any(record.settings.until for entry in compared for record in entry.records)
    return statistics.simultaneous_ratio(*chosen, paired, len(compared), noise, until_narrow)


def ratio_of_products(pairs, power, compared):
    """The Ratio of products of seconds per epoch, each to the power: of the first of the pairs of entries to that of the second.

    Over the keys that all have; None without any. The entries are among those `compared`, which show the noise from matrix to matrix.
    """
    sides = [[_epoch_seconds_of(entry) for entry in side] for side in zip(*pairs, strict=True)]
    shared = [key for key in sides[0][0] if all(key in seconds for side in sides for seconds in side)]
    if not shared:
        return None
    above, below = (np.prod([[seconds[key] for key in shared] for seconds in side], axis=0) ** power for side in sides)
    noise = _session_noise(sorted({matrix for matrix, _ in shared}), compared)
    noise = noise and noise._replace(variance=len(pairs) * power**2 * noise.variance)
    return statistics.simultaneous_ratio(above, below, paired=True, num_compared=2, session_noise=noise)


def _epoch_seconds_of(entry):
    """{key: seconds per epoch} of an entry's runs."""
    return {key_of(record): seconds for record in entry.from_start if (seconds := epochs.seconds(record))}


def ratio_of_one_run(above, below):
    """The statistics.ratio_of_one_run of two entries with one run each, which took turns side by side; None for any others."""
    if not len(above.records) == len(below.records) == 1 or key_of(above.records[0]) != key_of(below.records[0]):
        return None
    sides = [epochs.seconds_by_turn(entry.records[0]) for entry in (above, below)]
    num_rounds = min(map(len, sides))
    return statistics.ratio_of_one_run(*(side[:num_rounds] for side in sides))


def _session_noise(matrices, compared):
    """The Noise of a difference between entries from matrix to matrix, as all entries show it that have runs in each of the matrices."""
    logarithms = []
    for entry in compared:
        by_matrix = {}
        for record in entry.from_start:
            if seconds := epochs.seconds(record):
                by_matrix.setdefault(key_of(record)[0], []).append(np.log(seconds))
        if by_matrix.keys() >= set(matrices):
            logarithms.append([np.mean(by_matrix[matrix]) for matrix in matrices])
    return statistics.session_noise(np.transpose(logarithms)) if len(logarithms) > 1 else None


def value_ratio(above, below, value_of):
    """The Ratio of a value of the completed runs of two entries; None where either has no value."""
    values = run_values(above, below, value_of)
    return values and statistics.ratio(*values)


def run_values(above, below, value_of):
    """Returns (values, values, whether they are pairs) of the completed runs of two entries; None where either has no value."""
    sides = [[record for record in entry.ok if value_of(record) is not None] if entry else [] for entry in (above, below)]
    return (*(list(map(value_of, side)) for side in sides), _are_pairs(*sides)) if all(sides) else None


def _are_pairs(above, below):
    keys = [key_of(record) for record in above]
    return len(set(keys)) == len(keys) and keys == [key_of(record) for record in below]

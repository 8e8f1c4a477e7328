"""Groups records into entries: all runs of one backend at one number of ranks."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from common.backends import BASELINE
from common.command_line import flag
from common.config import Role, Settings, with_role
from common.errors import UserError
from common.record.definition import Record
from launch.report import epochs, statistics
from launch.report.statistics import Noise, Ratio

NOT_COMPARED = with_role(Role.NOT_COMPARED)
SLOWED_DOWN = f"traced or shared a GPU ({', '.join(map(flag, NOT_COMPARED))})"


# A function of launch/report/epochs.py: the seconds per epoch of a run, or of its first epochs.
SecondsPerEpoch = Callable[..., float | None]

NOT_REACHED = "not reached"


class Key(NamedTuple):
    """A matrix and a repeat in it. Runs of different backends with the same key ran close together in time and form a pair."""

    matrix: str
    repeat: int


class Entry(NamedTuple):
    """The repeats of one backend at one number of ranks: records in the order of their keys."""

    backend: str
    num_ranks: int
    records: tuple[Record, ...]

    @property
    def ok(self) -> list[Record]:
        """The completed runs."""
        return [record for record in self.records if record.status == "ok"]

    @property
    def from_start(self) -> list[Record]:
        """The completed runs whose records hold all of the training: those not resumed from a checkpoint."""
        return [record for record in self.ok if not record.resumed_after_epochs]

    @property
    def exact(self) -> bool:
        """Whether the backend trains what plain PyTorch does, up to rounding."""
        return all(record.exact for record in self.records)

    @property
    def batch_ratio(self) -> int:
        """The global batch over --batch-size: under weak scaling the data-parallel degree, else 1."""
        return self.records[0].data_parallel_degree if self.records[0].scaling == "weak" else 1

    @property
    def transport(self) -> str | None:
        """The transport of the gradients, which is the same in all runs; None where no record has it."""
        return next((transport for record in self.records if (transport := record.transport)), None)

    @property
    def oversubscribed(self) -> bool:
        """Whether any of its runs had more ranks than cores."""
        return any(record.oversubscribed for record in self.records)

    def trimmed_mean(self, value_of: Callable[[Record], float | None]) -> float | None:
        """Returns the trimmed mean of a value over the completed runs; None where no run has one."""
        return statistics.trimmed_mean(map(value_of, self.ok))


class Comparison(NamedTuple):
    """All entries of one workload under one kind of scaling, whose data was read in one way (`reading_of`)."""

    workload: str
    scaling: str
    reading: str
    entries: tuple[Entry, ...]

    @property
    def target(self) -> float | None:
        """The accuracy, or the number of another metric, to reach; None for a workload without one."""
        return next((record.target for entry in self.entries for record in entry.records if record.target is not None), None)

    @property
    def metric(self) -> str:
        """The name of what is compared with the target."""
        return next((record.metric for entry in self.entries for record in entry.records if record.metric != "accuracy"), "accuracy")

    @property
    def precision(self) -> str:
        """The precision, which is the same in all runs."""
        return self.entries[0].records[0].settings.precision

    @property
    def training(self) -> str:
        """The workload, precision and scaling, however the data was read."""
        precision = "" if self.precision == "fp32" else f" in {self.precision}"
        return f"{self.workload}{precision}, {self.scaling} scaling"

    @property
    def name(self) -> str:
        """The training, and the way in which the data was read."""
        return f"{self.training}, {self.reading}" if self.reading else self.training

    @property
    def sizes(self) -> list[int]:
        """The numbers of ranks, in ascending order."""
        return sorted({entry.num_ranks for entry in self.entries})

    def of_size(self, num_ranks: int, oversubscribed: bool | None = None) -> list[Entry]:
        """Returns the entries of a size, with `oversubscribed` only those that are, or are not, oversubscribed."""
        return [entry for entry in self.entries if entry.num_ranks == num_ranks and oversubscribed in (None, entry.oversubscribed)]

    def entry(self, backend: str, num_ranks: int) -> Entry | None:
        """Returns the entry of a backend at a size; None where there is none."""
        return next((entry for entry in self.entries if (entry.backend, entry.num_ranks) == (backend, num_ranks)), None)


def split_traced(records: Iterable[Record]) -> tuple[list[Record], list[Record]]:
    """Divides records into those that may be compared and those of runs slowed down by tracing, a timeline or a shared GPU.

    Controls and searches of the best are in neither. Raises UserError where no run may be compared.
    """
    records = list(records)
    plain = [record for record in records if is_compared(record)]
    slowed_down = [
        record for record in records if is_slowed_down(record) and not record.settings.control and not record.settings.library_setting
    ]
    if slowed_down and not plain:
        raise UserError(f"all of these runs were {SLOWED_DOWN}; compare runs that were not")
    if records and not plain:
        raise UserError(
            "all of these runs are controls of a matrix (--control) or of a search of the best; compare them together with other runs"
        )
    return plain, slowed_down


def is_slowed_down(record: Record) -> bool:
    """Returns whether a run was slowed down by tracing, a timeline or a shared GPU."""
    return any(getattr(record.settings, name) for name in NOT_COMPARED)


def is_compared(record: Record) -> bool:
    """Returns whether a run may be compared with those of other backends: it was not slowed down, and it is no control and of no search."""
    return record.settings.control is None and record.settings.library_setting is None and not is_slowed_down(record)


def comparisons(records: Iterable[Record]) -> list[Comparison]:
    """Returns the comparisons of records, by name. Their entries are ordered by backend and size, after those of the baseline."""
    cell_of = attrgetter("backend", "num_ranks")
    ordered = sorted(records, key=lambda record: (group_of(record), record.backend != BASELINE, cell_of(record), key_of(record)))
    compared = []
    for group, records_of_group in itertools.groupby(ordered, group_of):
        cells = itertools.groupby(records_of_group, cell_of)
        compared.append(Comparison(*group, tuple(Entry(*cell, tuple(records_of_cell)) for cell, records_of_cell in cells)))
    return compared


def group_of(record: Record) -> tuple[str, str, str]:
    """Returns the workload, scaling and way of reading the data of a record. Records that are equal in them are compared."""
    return record.workload, record.scaling, reading_of(record.settings)


def reading_of(settings: Settings) -> str:
    """Describes how a run's data was read from disk; empty for data in memory. Runs that differ in it are compared apart."""
    if settings.data_format == "memory":
        return ""
    workers = "1 worker" if settings.num_workers == 1 else f"{settings.num_workers} workers"
    ahead = f", {workers} of {settings.prefetch} batches" if settings.num_workers else ""
    dropped = {"none": "", "once": ", caches dropped", "epoch": ", caches dropped in every epoch"}[settings.drop_caches]
    return f"{settings.data_format}{ahead}{dropped}"


def key_of(record: Record) -> Key:
    """Returns the matrix and the repeat of a run."""
    run_id = record.settings.run_id or ""
    return Key(run_id.partition(f"-{record.workload}-{record.backend}-n")[0], record.repeat)


def matrices(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Returns the records of each matrix, matrices and records in the order in which they began."""
    by_matrix: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.started_at):
        by_matrix.setdefault(key_of(record).matrix, []).append(record)
    return by_matrix


def times(entry: Entry) -> list[float | None]:
    """Returns the time to solution of each run in seconds; None where it missed the target, failed, or was resumed from a checkpoint."""
    return [record.time_to_solution_seconds if record.status == "ok" else None for record in entry.records]


def scored_times(entry: Entry | None) -> list[float] | None:
    """Returns the times of an entry as statistics.scored gives them; None for a missing or invalid entry."""
    return statistics.scored(times(entry)) if entry else None


def misses(entry: Entry) -> list[str]:
    """Returns the status of each run without a time to solution; nothing for workloads without a target."""
    return [
        record.status if record.status != "ok" else "resumed" if record.reached else NOT_REACHED
        for record, time in zip(entry.records, times(entry), strict=True)
        if time is None and (record.status != "ok" or record.reached is not None)
    ]


def time_of(entry: Entry | None) -> float | None:
    """Returns the entry's time to solution in seconds; None for a missing or invalid entry."""
    return statistics.trimmed_mean(scored_times(entry) or ())


def time_with_startup(entry: Entry) -> float | None:
    """Returns the seconds from the start of the launcher to the target; None where they are not known, as outside a matrix.

    Repeats are scored as in `time_of`.
    """
    startup = (statistics.complete((record.launch_seconds, record.import_seconds, record.init_seconds)) for record in entry.records)
    seconds = [None if time is None or not stages else time + sum(stages) for time, stages in zip(times(entry), startup, strict=True)]
    return statistics.trimmed_mean(statistics.scored(seconds) or ())


def time_ratio(above: Entry | None, below: Entry | None) -> Ratio | None:
    """Returns the ratio of the times to solution of two entries; None where either has no time."""
    times_above, times_below = scored_times(above), scored_times(below)
    if not above or not below or not times_above or not times_below:
        return None
    return statistics.ratio(times_above, times_below, paired=_are_pairs(above.records, below.records))


def epoch_seconds(entry: Entry) -> float | None:
    """Returns the geometric mean of the seconds per epoch of an entry's runs; None without any."""
    by_run = statistics.present(map(epochs.seconds, entry.from_start))
    return statistics.geometric_mean(by_run) if by_run else None


def epoch_ratio(above: Entry, below: Entry, compared: Sequence[Entry], seconds_of: SecondsPerEpoch = epochs.seconds) -> Ratio | None:
    """Returns the ratio of the seconds per epoch of two of the entries `compared`; None where either has none.

    With `epochs.training_seconds` for `seconds_of` evaluation does not count. The interval is simultaneous for all pairs of these entries.
    Runs with the same key are pairs, and where there are several pairs only they count. Of a pair the epochs count that both have trained:
    of runs side by side these had their turns one after the other.
    """
    records_above, records_below = (
        {key_of(record): record for record in entry.from_start if seconds_of(record)} for entry in (above, below)
    )
    shared = [key for key in records_above if key in records_below]
    if len(shared) > 1:
        pairs = [(records_above[key], records_below[key]) for key in shared]
        num_epochs = [min(len(record.train_seconds) for record in pair) for pair in pairs]
        seconds_above, seconds_below = (
            statistics.present(seconds_of(pair[side], num) for pair, num in zip(pairs, num_epochs, strict=True)) for side in (0, 1)
        )
    else:
        seconds_above, seconds_below = (statistics.present(map(seconds_of, records.values())) for records in (records_above, records_below))
    if not seconds_above or not seconds_below:
        return None
    paired = len(shared) > 1 or (len(shared) == 1 and len(seconds_above) == len(seconds_below) == 1)
    noise = _session_noise(sorted({key.matrix for key in shared}), (above, below), compared, seconds_of)
    until_narrow = any(record.settings.until for entry in compared for record in entry.records)
    return statistics.simultaneous_ratio(seconds_above, seconds_below, paired, len(compared), noise, until_narrow)


def ratio_of_products(pairs: Sequence[tuple[Entry, Entry]], power: float, compared: Sequence[Entry]) -> Ratio | None:
    """Returns the ratio of two products of seconds per epoch, each to the power: of the first entries of the pairs to that of the second.

    Only keys that all entries have count; without any the ratio is None. The entries are among those `compared`, which show the noise
    from matrix to matrix.
    """
    sides = [[epoch_seconds_by_key(entry) for entry in side] for side in zip(*pairs, strict=True)]
    shared = [key for key in sides[0][0] if all(key in seconds for side in sides for seconds in side)]
    if not shared:
        return None
    above, below = (_product(side, shared) ** power for side in sides)
    noise = _session_noise(sorted({key.matrix for key in shared}), [entry for pair in pairs for entry in pair], compared)
    noise = noise and noise._replace(variance=power**2 * noise.variance)
    return statistics.simultaneous_ratio(above.tolist(), below.tolist(), paired=True, num_compared=2, session_noise=noise)


def _product(factors: Iterable[Mapping[Key, float]], keys: Sequence[Key]) -> np.ndarray:
    """Returns the product of the factors at each of the keys."""
    return np.prod([[seconds[key] for key in keys] for seconds in factors], axis=0)


def epoch_seconds_by_key(entry: Entry, seconds_of: SecondsPerEpoch = epochs.seconds) -> dict[Key, float]:
    """Returns the seconds per epoch of an entry's runs."""
    return {key_of(record): seconds for record in entry.from_start if (seconds := seconds_of(record))}


def ratio_of_one_run(above: Entry, below: Entry) -> Ratio | None:
    """Returns the ratio of two entries with one run each, which took turns side by side; None for any others."""
    if not len(above.records) == len(below.records) == 1 or key_of(above.records[0]) != key_of(below.records[0]):
        return None
    sides = [epochs.seconds_by_turn(entry.records[0]) for entry in (above, below)]
    num_rounds = min(map(len, sides))
    return statistics.ratio_of_one_run(*(side[:num_rounds] for side in sides))


def _session_noise(
    matrices: Sequence[str], factors: Iterable[Entry], compared: Iterable[Entry], seconds_of: SecondsPerEpoch = epochs.seconds
) -> Noise | None:
    """Returns the noise from matrix to matrix of a ratio whose numerator and denominator have these factors; None where it is not known.

    It is known from the entries compared, among them the factors, that have runs in each of the matrices.
    """
    logarithms: dict[str, list[float]] = {}
    for entry in compared:
        by_matrix: dict[str, list[float]] = {}
        for key, seconds in epoch_seconds_by_key(entry, seconds_of).items():
            by_matrix.setdefault(key.matrix, []).append(math.log(seconds))
        if by_matrix.keys() >= set(matrices):
            logarithms[entry.backend] = [float(np.mean(by_matrix[matrix])) for matrix in matrices]
    noises = statistics.session_noises(np.transpose(list(logarithms.values()))) if len(logarithms) > 1 else []
    noise_of = dict(zip(logarithms, noises, strict=False))
    return statistics.summed([noise_of[entry.backend] for entry in factors]) if noise_of else None


def value_ratio(above: Entry | None, below: Entry | None, value_of: Callable[[Record], float | None]) -> Ratio | None:
    """Returns the ratio of a value of the completed runs of two entries; None where either has no value."""
    values = run_values(above, below, value_of)
    return values and statistics.ratio(*values)


def run_values(
    above: Entry | None, below: Entry | None, value_of: Callable[[Record], float | None]
) -> tuple[list[float], list[float], bool] | None:
    """Returns the values of the completed runs of two entries and whether they are pairs; None where either has no value."""
    records_above, records_below = (
        [record for record in entry.ok if value_of(record) is not None] if entry else [] for entry in (above, below)
    )
    if not records_above or not records_below:
        return None
    values_above, values_below = (statistics.present(map(value_of, records)) for records in (records_above, records_below))
    return values_above, values_below, _are_pairs(records_above, records_below)


def _are_pairs(above: Iterable[Record], below: Iterable[Record]) -> bool:
    keys = [key_of(record) for record in above]
    return len(set(keys)) == len(keys) and keys == [key_of(record) for record in below]

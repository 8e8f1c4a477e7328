"""Groups records into entries: all runs of one backend at one number of ranks; and ratios of two entries over their repeats."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from common.backends import declaration_of
from common.command_line import flag
from common.config import Settings
from common.declarations import ALONE, declared
from common.record.definition import Record
from common.terminal import Cell
from common.workloads import SIZES
from launch.report import statistics, table
from launch.report.statistics import Ratio

NOT_REACHED = "not reached"
# The columns of the table with the time to solution, and with that from the start of the launcher on; and that with the seconds per epoch.
TIMES = TIME, TIME_WITH_STARTUP = "valid_time_seconds", "valid_time_with_startup_seconds"
EPOCH = "epoch_seconds"


class Key(NamedTuple):
    """A matrix and a repeat in it. Runs of different backends with the same key ran close together in time and form a pair."""

    matrix: str
    repeat: int


@dataclass(frozen=True, eq=False)
class Entry:
    """The repeats of one backend at one number of ranks: rows of the table, by their records in the order of their keys."""

    backend: str
    num_ranks: int
    records: Sequence[Record]
    _columns: dict[str, dict[Key, Any]] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def ok(self) -> list[Record]:
        """The completed runs."""
        return [record for record in self.records if record.status == "ok"]

    @cached_property
    def from_start(self) -> list[Record]:
        """The completed runs whose records hold all of the training: those not resumed from a checkpoint."""
        return [record for record in self.ok if not record.resumed_after_epochs]

    @property
    def exact(self) -> bool:
        """Whether the backend trains what plain PyTorch does, up to rounding."""
        return all(record.exact for record in self.records)

    @property
    def target(self) -> float | None:
        """The accuracy, or the number of another metric, to reach; None for a workload without one."""
        return next((record.target for record in self.records if record.target is not None), None)

    @property
    def metric(self) -> str:
        """The name of what is compared with the target."""
        return next((record.metric for record in self.records if record.metric != "accuracy"), "accuracy")

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

    @property
    def cells(self) -> dict[str, Cell]:
        """The cells that say which entry a row of a report's table is of."""
        return {"backend": self.backend, "ranks": self.num_ranks, "oversubscribed": "yes" if self.oversubscribed else None}

    @property
    def misses(self) -> list[str]:
        """The status of each run without a time to solution; nothing for workloads without a target."""
        return [
            record.status if record.status != "ok" else "resumed" if record.reached else NOT_REACHED
            for record in self.records
            if table.valid_time_seconds(record) is None and (record.status != "ok" or record.reached is not None)
        ]

    @property
    def epoch_seconds(self) -> float | None:
        """The geometric mean of the seconds per epoch of the runs; None without any."""
        by_run = self.values(EPOCH)
        return statistics.geometric_mean(list(by_run.values())) if by_run else None

    def values(self, column: str) -> dict[Key, Any]:
        """Returns the values of the completed runs in a column of the table, without those that are not known.

        Times to solution are those of all runs as statistics.scored gives them, none of an invalid entry.
        """
        if column not in self._columns:
            records = self.records if column in TIMES else self.ok
            values = [table.value_of(record, column) for record in records]
            known = statistics.scored(values) or [] if column in TIMES else values
            by_run = zip(map(key_of, records), known, strict=False)
            self._columns[column] = {key: value for key, value in by_run if value is not None}
        return self._columns[column]

    def trimmed_mean(self, column: str) -> float | None:
        """Returns the trimmed mean of a column over the completed runs; None where no run has a value."""
        return statistics.trimmed_mean(self.values(column).values())

    def mean(self, column: str) -> float | None:
        """Returns the mean of a column over the completed runs; None where no run has a value."""
        return statistics.mean(self.values(column).values())


class Comparison(NamedTuple):
    """All entries of one workload under one kind of scaling, whose data was read in one way (`reading_of`)."""

    workload: str
    scaling: str
    reading: str
    entries: tuple[Entry, ...]

    @property
    def records(self) -> list[Record]:
        """The records of all entries."""
        return [record for entry in self.entries for record in entry.records]

    @property
    def target(self) -> float | None:
        """The accuracy, or the number of another metric, to reach; None for a workload without one."""
        return next((entry.target for entry in self.entries if entry.target is not None), None)

    @property
    def metric(self) -> str:
        """The name of what is compared with the target."""
        return next((entry.metric for entry in self.entries if entry.metric != "accuracy"), "accuracy")

    @property
    def precision(self) -> str:
        """The precision, which is the same in all runs."""
        return self.entries[0].records[0].settings.precision

    @property
    def model(self) -> str:
        """The workload, with the sizes of its model that were given, as options."""
        settings = self.entries[0].records[0].settings
        sizes = [f"{flag(name)} {size}" for name in SIZES if (size := getattr(settings, name)) is not None]
        return " ".join([self.workload, *sizes])

    @property
    def name(self) -> str:
        """The model, precision and scaling, and the way in which the data was read."""
        precision = "" if self.precision == "fp32" else f" in {self.precision}"
        return ", ".join(filter(None, [f"{self.model}{precision}", f"{self.scaling} scaling", self.reading]))

    @property
    def sizes(self) -> list[int]:
        """The numbers of ranks, in ascending order."""
        return sorted({entry.num_ranks for entry in self.entries})

    def by_size(self, oversubscribed: bool = False) -> dict[int, list[Entry]]:
        """Returns the entries with cores of their own, or the oversubscribed ones, by number of ranks in ascending order."""
        return {size: entries for size in self.sizes if (entries := self.of_size(size, oversubscribed))}

    def of_size(self, num_ranks: int, oversubscribed: bool | None = None) -> list[Entry]:
        """Returns the entries of a size, with `oversubscribed` only those that are, or are not, oversubscribed."""
        return [entry for entry in self.entries if entry.num_ranks == num_ranks and oversubscribed in (None, entry.oversubscribed)]

    def entry(self, backend: str, num_ranks: int) -> Entry | None:
        """Returns the entry of a backend at a size; None where there is none."""
        return next((entry for entry in self.entries if (entry.backend, entry.num_ranks) == (backend, num_ranks)), None)

    def plain_entry(self, backend: str) -> Entry | None:
        """Returns the entry of plain training in a backend's framework, as `single` for PyTorch and `single_tf` for TensorFlow.

        It is None where that did not run, and for plain training itself.
        """
        framework = declaration_of(backend).framework
        plain = [name for name, declaration in declared().items() if (declaration.library, declaration.framework) == (ALONE, framework)]
        return self.entry(plain[0], 1) if plain and backend not in plain else None


def group_of(record: Record) -> tuple[str, str, str]:
    """Returns the workload, scaling and way of reading the data of a record. Records that are equal in them are compared."""
    return record.workload, record.scaling, reading_of(record.settings)


def reading_of(settings: Settings) -> str:
    """Describes how a run's data was read; empty for data in memory without workers. Runs that differ in it are compared apart."""
    workers = "1 worker" if settings.num_workers == 1 else f"{settings.num_workers} workers"
    return ", ".join(([] if settings.data_format == "memory" else [settings.data_format]) + ([workers] if settings.num_workers else []))


def key_of(record: Record) -> Key:
    """Returns the matrix and the repeat of a run."""
    return Key(table.matrix(record), record.repeat)


def value_ratio(above: Entry | None, below: Entry | None, column: str) -> Ratio | None:
    """Returns the ratio of the trimmed means of a column of two entries, None where either has none; its interval holds for it alone."""
    values_above, values_below = (entry.values(column) if entry else {} for entry in (above, below))
    mean_above, mean_below = (statistics.trimmed_mean(values.values()) for values in (values_above, values_below))
    if mean_above is None or mean_below is None:
        return None
    return statistics.ratio(*sides(values_above, values_below), value=mean_above / (mean_below or statistics.SMALLEST))


def num_pairs_of(compared: Sequence[Entry]) -> int:
    """Returns how many pairs the entries form that are compared with each other."""
    return max(math.comb(len(compared), 2), 1)


def sides(above: Mapping[Key, float], below: Mapping[Key, float]) -> tuple[list[float], list[float], bool]:
    """Returns the values of two entries, in the same order if they have the same keys, and whether they have."""
    paired = above.keys() == below.keys()
    return list(above.values()), [below[key] for key in (above if paired else below)], paired


def epoch_ratio(above: Entry, below: Entry, compared: Sequence[Entry], num_pairs: int | None = None) -> Ratio | None:
    """Returns the ratio of the seconds per epoch of two of the entries `compared`; None where either has none.

    The interval is simultaneous for all pairs of these entries, or for `num_pairs` pairs. Where there are several pairs of runs, only they
    count, and of a pair the epochs that both have trained: of runs side by side these had their turns one after the other.
    """
    seconds_above, seconds_below = above.values(EPOCH), below.values(EPOCH)
    shared = [key for key in seconds_above if key in seconds_below]
    if len(shared) > 1:
        records_above, records_below = ({key_of(record): record for record in entry.ok} for entry in (above, below))
        num_epochs = {key: min(len(records_above[key].train_seconds), len(records_below[key].train_seconds)) for key in shared}
        seconds_above, seconds_below = (
            {key: seconds for key in shared if (seconds := table.epoch_seconds(records[key], num_epochs[key])) is not None}
            for records in (records_above, records_below)
        )
    if not seconds_above or not seconds_below:
        return None
    values_above, values_below, paired = sides(seconds_above, seconds_below)
    others = [entry.values(EPOCH) for entry in compared if paired and entry not in (above, below)]
    # Of the others those count that ran in all of these repeats.
    aligned = [[values[key] for key in seconds_above] for values in others if values.keys() >= seconds_above.keys()]
    return statistics.ratio(values_above, values_below, paired, aligned, num_pairs or num_pairs_of(compared))

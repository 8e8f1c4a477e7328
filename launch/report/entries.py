"""Groups records into entries: all runs of one backend at one number of ranks."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

from common.backends import declaration_of
from common.command_line import flag
from common.config import Role, Settings, with_role
from common.declarations import ALONE, BASELINE, declared
from common.errors import UserError
from common.record.definition import Record
from common.terminal import Cell
from common.workloads import SIZES
from launch.report import statistics, table

NOT_COMPARED = with_role(Role.NOT_COMPARED)
SLOWED_DOWN = f"traced or shared a GPU ({', '.join(map(flag, NOT_COMPARED))})"


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

    def values(self, column: str) -> dict[Key, Any]:
        """Returns the values of the completed runs in a column of the table, without those that are not known."""
        if column not in self._columns:
            values = {key_of(record): table.value_of(record, column) for record in self.ok}
            self._columns[column] = {key: value for key, value in values.items() if value is not None}
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
    def machine(self) -> str:
        """The name of the machine, which is the same in all runs."""
        return table.machine(self.entries[0].records[0])

    @property
    def target(self) -> float | None:
        """The accuracy, or the number of another metric, to reach; None for a workload without one."""
        return next((record.target for record in self.records if record.target is not None), None)

    @property
    def metric(self) -> str:
        """The name of what is compared with the target."""
        return next((record.metric for record in self.records if record.metric != "accuracy"), "accuracy")

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
    def training(self) -> str:
        """The model, precision and scaling, however the data was read."""
        precision = "" if self.precision == "fp32" else f" in {self.precision}"
        return f"{self.model}{precision}, {self.scaling} scaling"

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

    def plain_entry(self, backend: str) -> Entry | None:
        """Returns the entry of plain training in a backend's framework, as `single` for PyTorch and `single_tf` for TensorFlow.

        It is None where that did not run, and for plain training itself.
        """
        framework = declaration_of(backend).framework
        plain = [name for name, declaration in declared().items() if (declaration.library, declaration.framework) == (ALONE, framework)]
        return self.entry(plain[0], 1) if plain and backend not in plain else None


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
    entry_of = attrgetter("backend", "num_ranks")
    ordered = sorted(records, key=lambda record: (group_of(record), record.backend != BASELINE, entry_of(record), key_of(record)))
    compared = []
    for group, records_of_group in itertools.groupby(ordered, group_of):
        repeats = itertools.groupby(records_of_group, entry_of)
        compared.append(Comparison(*group, tuple(Entry(*repeated, tuple(records_of_entry)) for repeated, records_of_entry in repeats)))
    return compared


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


def matrices(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Returns the records of each matrix, matrices and records in the order in which they began."""
    by_matrix: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.started_at):
        by_matrix.setdefault(key_of(record).matrix, []).append(record)
    return by_matrix

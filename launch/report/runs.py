"""The records that are reported on: which of them may be compared, and the comparisons that they make."""

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from common.command_line import flag
from common.config import TRAINING_SETTINGS, Role, with_role
from common.declarations import BASELINE
from common.errors import UserError
from common.record import files
from common.record.comparison import COMPARED, COMPARED_OF_BACKEND, OF_MODEL, setting_differences
from common.record.definition import Record
from common.record.files import Damaged
from launch.report import environments, table
from launch.report.entries import Comparison, Entry, group_of, key_of

NOT_COMPARED = with_role(Role.NOT_COMPARED)
SLOWED_DOWN = f"traced or shared a GPU ({', '.join(map(flag, NOT_COMPARED))})"


class Runs(NamedTuple):
    """The runs that are reported on: comparisons of those that may be compared, the others, and files that are no record."""

    comparisons: Sequence[Comparison] = ()
    not_compared: Sequence[Record] = ()
    damaged: Sequence[Damaged] = ()

    @property
    def entries(self) -> list[Entry]:
        """The entries of all comparisons."""
        return [entry for comparison in self.comparisons for entry in comparison.entries]

    @property
    def compared(self) -> list[Record]:
        """The records of all comparisons, by comparison, backend, size and repeat."""
        return [record for comparison in self.comparisons for record in comparison.records]

    @property
    def traced(self) -> list[Record]:
        """The records of runs that tracing, a timeline or a shared GPU slowed down."""
        return [record for record in self.not_compared if is_traced(record)]

    @property
    def backends(self) -> list[str]:
        """The names of the backends, each once."""
        return list(dict.fromkeys(entry.backend for entry in self.entries))

    @property
    def machine(self) -> str:
        """The name of the machine; empty without runs."""
        return table.machine(self.compared[0]) if self.comparisons else ""


def collect(paths: Sequence[Path]) -> tuple[list[Record], list[Damaged]]:
    """Returns the records of files and of folders, recursively and by name, and the files that are not records.

    Raises UserError where a path is missing, and where no record is found.
    """
    if not paths:
        raise UserError("which records? Give files or folders, such as results/MACHINE")
    records, damaged = files.collect(paths)
    if not records:
        reason = f"; {damaged[0].path}: {damaged[0].reason}" if damaged else ""
        raise UserError(f"there is no record in {', '.join(map(str, paths))}{reason}")
    return records, damaged


def runs_of(records: Iterable[Record], damaged: Sequence[Damaged] = ()) -> Runs:
    """Returns the runs of records, with the files that are not records.

    Raises UserError for records of several machines, and for those that are not comparable.
    """
    compared, not_compared = split(records)
    check_one_machine(compared)
    check_comparable(compared)
    return Runs(comparisons(compared), not_compared, damaged)


def split(records: Iterable[Record]) -> tuple[list[Record], list[Record]]:
    """Divides records into those that may be compared with other backends' and the others: traced runs, controls, searches of the best.

    Raises UserError where no run may be compared.
    """
    records = list(records)
    compared = list(filter(is_compared, records))
    if records and not compared:
        if any(map(is_traced, records)):
            raise UserError(f"all of these runs were {SLOWED_DOWN}; compare runs that were not")
        raise UserError(
            "all of these runs are controls of a matrix (--control) or of a search of the best; compare them together with other runs"
        )
    return compared, [record for record in records if not is_compared(record)]


def is_compared(record: Record) -> bool:
    """Returns whether a run may be compared with those of other backends: it was not slowed down, and it is no control and of no search."""
    return record.settings.control is None and record.settings.library_setting is None and not _is_slowed_down(record)


def is_traced(record: Record) -> bool:
    """Returns whether a run, which is no control and of no search, was slowed down by tracing, a timeline or a shared GPU."""
    return record.settings.control is None and record.settings.library_setting is None and _is_slowed_down(record)


def _is_slowed_down(record: Record) -> bool:
    return any(getattr(record.settings, name) for name in NOT_COMPARED)


def comparisons(records: Iterable[Record]) -> list[Comparison]:
    """Returns the comparisons of records, by name. Their entries are ordered by backend and size, after those of the baseline."""
    entry_of = attrgetter("backend", "num_ranks")
    ordered = sorted(records, key=lambda record: (group_of(record), record.backend != BASELINE, entry_of(record), key_of(record)))
    compared = []
    for group, records_of_group in itertools.groupby(ordered, group_of):
        repeats = itertools.groupby(records_of_group, entry_of)
        compared.append(Comparison(*group, tuple(Entry(*repeated, tuple(records_of_entry)) for repeated, records_of_entry in repeats)))
    return compared


def check_comparable(records: Sequence[Record]) -> None:
    """Raises UserError for records that are not comparable, whether of one machine or of two.

    These are records of different training or devices under one workload, scaling and way of reading the data, or of different numbers of
    nodes or different transports for one backend and size. A run that failed before its workload digest was known has no measurements and
    is accepted.
    """
    trained_records = [record for record in records if record.workload_digest]
    for record, first in _pairs(trained_records, group_of):
        if record.workload_digest != first.workload_digest:
            differences = setting_differences(record.settings, first.settings, [*COMPARED, *OF_MODEL])
            trained = [text for name, text in differences.items() if name in (*TRAINING_SETTINGS, "epochs", *OF_MODEL)]
            reason = ", ".join(trained) or "their data or rate factors differ"
            raise UserError(f"{_names(record, first)} trained different things ({reason}); compare them separately")
    of_backend = attrgetter("workload", "scaling", "backend")
    for groups_of, names in ((group_of, COMPARED), (of_backend, COMPARED_OF_BACKEND)):
        for record, first in _pairs(trained_records, groups_of):
            if differences := setting_differences(record.settings, first.settings, names):
                texts = ", ".join(differences.values())
                raise UserError(f"{_names(record, first)} have different settings ({texts}); compare them separately")
    _check_equal(trained_records, group_of, environments.device_of, "on different devices")
    repeated = attrgetter("workload", "scaling", "backend", "num_ranks")
    _check_equal(records, repeated, attrgetter("num_nodes"), "on different numbers of nodes")
    _check_equal(records, repeated, attrgetter("transport"), "over different transports")
    _check_equal(records, repeated, attrgetter("library_configuration"), "with different configurations of their library")


def check_one_machine(records: Iterable[Record]) -> None:
    """Raises UserError for records of several machines."""
    if len(machines := sorted({table.machine(record) for record in records})) > 1:
        raise UserError(f"the records are of several machines ({', '.join(machines)}); compare one, with another as its --baseline")


def _pairs(records: Iterable[Record], groups_of: Callable[[Record], Hashable]) -> Iterator[tuple[Record, Record]]:
    """Yields each record with the first of its group."""
    first_of_group: dict[Hashable, Record] = {}
    for record in records:
        yield record, first_of_group.setdefault(groups_of(record), record)


def _names(record: Record, first: Record) -> str:
    return f"{record.settings.run_id} and {first.settings.run_id}"


def _check_equal(
    records: Iterable[Record], groups_of: Callable[[Record], Hashable], value_of: Callable[[Record], object], difference: str
) -> None:
    """Raises UserError where records of one group have different values; None is not known, and differs from nothing."""
    for record, first in _pairs([record for record in records if value_of(record) is not None], groups_of):
        if value_of(record) != value_of(first):
            raise UserError(f"{_names(record, first)} ran {difference} ({value_of(record)} and {value_of(first)}); compare them separately")

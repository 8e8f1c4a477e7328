"""Whether records are comparable: one machine, one training, and equal settings wherever the run time depends on them."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from operator import attrgetter

from common.config import TRAINING_SETTINGS
from common.errors import UserError
from common.record.comparison import COMPARED, COMPARED_OF_BACKEND, OF_MODEL, setting_differences
from common.record.definition import Record
from launch.report import entries, environments


def check(records: Sequence[Record]) -> None:
    """Raises UserError for records that are not comparable, among them those of several machines."""
    check_one_machine(records)
    check_runs(records)


def check_runs(records: Sequence[Record]) -> None:
    """Raises UserError for records that are not comparable even where they may be of different machines.

    These are records of different training or devices under one workload, scaling and way of reading the data, or of different numbers of
    nodes or different transports for one backend and size. A run that failed before its workload digest was known has no measurements and
    is accepted.
    """
    trained_records = [record for record in records if record.workload_digest]
    check_training(records)
    of_backend = attrgetter("workload", "scaling", "backend")
    for group_of, names in ((entries.group_of, COMPARED), (of_backend, COMPARED_OF_BACKEND)):
        for record, first in _pairs(trained_records, group_of):
            if differences := setting_differences(record.settings, first.settings, names):
                texts = ", ".join(differences.values())
                raise UserError(f"{_names(record, first)} have different settings ({texts}); compare them separately")
    _check_equal(trained_records, entries.group_of, environments.device_of, "on different devices")
    repeated = attrgetter("workload", "scaling", "backend", "num_ranks")
    _check_equal(records, repeated, attrgetter("num_nodes"), "on different numbers of nodes")
    _check_equal(records, repeated, attrgetter("transport"), "over different transports")
    _check_equal(records, repeated, attrgetter("library_configuration"), "with different configurations of their library")


def check_one_machine(records: Iterable[Record]) -> None:
    """Raises UserError for records of several machines."""
    if len(machines := environments.machines_of(records)) > 1:
        raise UserError(f"the records are of several machines ({', '.join(machines)}); compare one machine at a time")


def check_training(records: Iterable[Record]) -> None:
    """Raises UserError for records of different training under one workload, scaling and way of reading the data, on any machines."""
    for record, first in _pairs([record for record in records if record.workload_digest], entries.group_of):
        if record.workload_digest != first.workload_digest:
            differences = setting_differences(record.settings, first.settings, [*COMPARED, *OF_MODEL])
            trained = [text for name, text in differences.items() if name in (*TRAINING_SETTINGS, "epochs", *OF_MODEL)]
            reason = ", ".join(trained) or "their data or rate factors differ"
            raise UserError(f"{_names(record, first)} trained different things ({reason}); compare them separately")


def _pairs(records: Iterable[Record], group_of: Callable[[Record], Hashable]) -> Iterator[tuple[Record, Record]]:
    """Yields each record with the first of its group."""
    first_of_group: dict[Hashable, Record] = {}
    for record in records:
        yield record, first_of_group.setdefault(group_of(record), record)


def _names(record: Record, first: Record) -> str:
    return f"{record.settings.run_id} and {first.settings.run_id}"


def _check_equal(
    records: Iterable[Record], group_of: Callable[[Record], Hashable], value_of: Callable[[Record], object], difference: str
) -> None:
    """Raises UserError where records of one group have different values; None is not known, and differs from nothing."""
    for record, first in _pairs([record for record in records if value_of(record) is not None], group_of):
        if value_of(record) != value_of(first):
            raise UserError(f"{_names(record, first)} ran {difference} ({value_of(record)} and {value_of(first)}); compare them separately")

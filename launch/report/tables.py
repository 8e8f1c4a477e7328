"""The parts of the answer: sections with sentences and tables, and the columns that several tables have."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar

from common.terminal import OVERSUBSCRIBED, Cell, Column, Table

MIB, MB = 2**20, 10**6
NOT_MEASURED = "not measured"

Subject = TypeVar("Subject")


class MayBeOversubscribed(Protocol):
    """An entry, or what else may have more ranks than cores."""

    @property
    def oversubscribed(self) -> bool: ...


Ran = TypeVar("Ran", bound=MayBeOversubscribed)


class Findings(NamedTuple):
    """What a question finds out: sentences, and tables. `details`: sentences on what the tables have too."""

    sentences: list[str]
    tables: list[Table]
    details: Sequence[str] = ()


class Section(NamedTuple):
    """A question and its answer; `key` identifies the section in exports."""

    key: str
    question: str
    sentences: list[str]
    tables: list[Table]
    details: Sequence[str] = ()


# Columns of subjects with a number of ranks and a backend, such as entries and records.
RANKS = Column("ranks", attrgetter("num_ranks"))
BACKEND = Column("backend", attrgetter("backend"))
# Columns that several tables have, each with a function of its own subjects.
interval_column = partial(Column, "95 % interval")
time_column = partial(Column, "time to solution (s)", form=".2f")
rate_column = partial(Column, "samples/s", form=".0f")
accuracy_column = partial(Column, "accuracy", form=".4f")


def of_metric(columns: Sequence[Column[Subject]], metric: str) -> tuple[Column[Subject], ...]:
    """Returns the columns with the name of a comparison's metric in place of the accuracy."""
    return tuple(column._replace(name=column.name.replace("accuracy", metric)) for column in columns)


def through(attribute: str, *columns: Column[Any]) -> tuple[Column[Any], ...]:
    """Returns the columns for subjects that have the columns' subject as an attribute."""
    subject_of = attrgetter(attribute)
    return tuple(column._replace(value_of=_composed(column.value_of, subject_of)) for column in columns)


def _composed(value_of: Callable[[Any], Cell], subject_of: Callable[[Any], Any]) -> Callable[[Any], Cell]:
    return lambda row: value_of(subject_of(row))


def milliseconds(seconds: float | None) -> float | None:
    """Returns seconds as milliseconds; None where they are not known."""
    return None if seconds is None else 1000 * seconds


def in_unit(value: float | None, unit: float) -> float | None:
    """Returns a value in a unit, such as MB; None where it is not known."""
    return None if value is None else value / unit


def apart(title: str, entries: Iterable[Ran]) -> list[tuple[str, list[Ran]]]:
    """Divides entries into those that have cores of their own and those that are oversubscribed, whose title shows it."""
    fair: list[Ran] = []
    shared: list[Ran] = []
    for entry in entries:
        (shared if entry.oversubscribed else fair).append(entry)
    return [(title, fair), (f"{title}, {OVERSUBSCRIBED}", shared)]

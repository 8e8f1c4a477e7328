"""The parts of the answer: sections with sentences and tables, and the columns that several tables have."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

MIB, MB = 2**20, 10**6
NOT_MEASURED = "not measured"

Cell = float | str | None
Subject = TypeVar("Subject")


class MayBeOversubscribed(Protocol):
    """An entry, or what else may have more ranks than cores."""

    @property
    def oversubscribed(self) -> bool: ...


Ran = TypeVar("Ran", bound=MayBeOversubscribed)


class Column(NamedTuple, Generic[Subject]):
    """A column: its heading, with its unit, how it computes its cell from the subject of a row, and the format of its numbers.

    `brief`: a document with one table per comparison has this column, whichever question it is from.
    """

    name: str
    value_of: Callable[[Subject], Cell]
    form: str = ""
    brief: bool = False

    def text(self, value: Cell) -> str:
        """Returns a value as text; an unknown value is a dash."""
        if value is None:
            return "-"
        return format(value, self.form) if self.form and isinstance(value, float) else str(value)


class Table(NamedTuple):
    """A title, columns and rows with one cell for each column."""

    title: str
    columns: Sequence[Column[Any]]
    rows: list[tuple[Cell, ...]]

    @property
    def texts(self) -> list[list[str]]:
        """The rows as texts."""
        return [[column.text(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows]

    @property
    def numeric_columns(self) -> set[int]:
        """The indices of the columns that have a number."""
        return {index for row in self.rows for index, value in enumerate(row) if isinstance(value, (int, float))}

    @property
    def oversubscribed(self) -> bool:
        """Whether the rows are of entries with more ranks than cores."""
        return self.title.endswith(OVERSUBSCRIBED)


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
RANKS = Column("ranks", attrgetter("num_ranks"), brief=True)
BACKEND = Column("backend", attrgetter("backend"), brief=True)
# Columns that several tables have, each with a function of its own subjects.
interval_column = partial(Column, "95 % interval", brief=True)
time_column = partial(Column, "time to solution (s)", form=".2f", brief=True)
rate_column = partial(Column, "samples/s", form=".0f")
accuracy_column = partial(Column, "accuracy", form=".4f")
# Ends the titles of tables and charts of entries with more ranks than cores.
OVERSUBSCRIBED = "oversubscribed: not a scaling measurement"


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


def filled(title: str, columns: Sequence[Column[Subject]], subjects: Iterable[Subject]) -> list[Table]:
    """Returns the table with a row for each subject, in a list; an empty list where there are no subjects."""
    rows = [tuple(column.value_of(subject) for column in columns) for subject in subjects]
    return [Table(title, columns, rows)] if rows else []


def apart(title: str, entries: Iterable[Ran]) -> list[tuple[str, list[Ran]]]:
    """Divides entries into those that have cores of their own and those that are oversubscribed, whose title shows it."""
    fair: list[Ran] = []
    shared: list[Ran] = []
    for entry in entries:
        (shared if entry.oversubscribed else fair).append(entry)
    return [(title, fair), (f"{title}, {OVERSUBSCRIBED}", shared)]

"""The parts of the answer: tables of values with their formats. Pure."""

from typing import NamedTuple

MIB, MB = 2**20, 10**6
NOT_MEASURED = "not measured"


class Column(NamedTuple):
    """A column's heading, with its unit, and the format of its numbers.

    `brief`: a document with one table per comparison has this column, whichever question it is from.
    """

    name: str
    form: str = ""
    brief: bool = False

    def text(self, value):
        """A value as text; an unknown value is a dash."""
        if value is None:
            return "-"
        return format(value, self.form) if self.form and isinstance(value, float) else str(value)


class Table(NamedTuple):
    """Values are numbers, texts or None, one for each column."""

    title: str
    columns: tuple[Column, ...]
    rows: list[tuple]

    @property
    def texts(self):
        """The rows as texts."""
        return [[column.text(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows]

    @property
    def numeric_columns(self):
        """The indices of the columns that have a number."""
        return {index for row in self.rows for index, value in enumerate(row) if isinstance(value, (int, float))}

    @property
    def oversubscribed(self):
        return self.title.endswith(OVERSUBSCRIBED)


class Section(NamedTuple):
    """A question and its answer; `key` identifies the section in exports."""

    key: str
    question: str
    sentences: list[str]
    tables: list[Table]


RANKS, BACKEND, INTERVAL = (Column(name, brief=True) for name in ("ranks", "backend", "95 % interval"))
TIME = Column("time to solution (s)", ".2f", brief=True)
RATE, ACCURACY = Column("samples/s", ".0f"), Column("accuracy", ".4f")
# Ends the titles of tables and charts of entries with more ranks than cores.
OVERSUBSCRIBED = "oversubscribed: not a scaling measurement"


def filled(title, columns, rows):
    """The table in a list; an empty list where there are no rows."""
    return [Table(title, columns, rows)] if rows else []


def apart(title, entries):
    """[(title, entries)]: those that have cores of their own, and those that are oversubscribed, whose title says so."""
    shared = [entry for entry in entries if entry.oversubscribed]
    return [(title, [entry for entry in entries if not entry.oversubscribed]), (f"{title}, {OVERSUBSCRIBED}", shared)]

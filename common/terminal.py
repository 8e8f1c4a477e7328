"""Tables and lines on a terminal: whatever prints a table does it here."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from rich.console import Console, Group
from rich.table import Table as DrawnTable
from rich.text import Text

from common.errors import printable

# Used where the output is not a terminal.
PLAIN_WIDTH = 240
# Padding and border of each column, and the border at the end.
COLUMN_OVERHEAD, TABLE_OVERHEAD = 3, 1
# Longer texts, such as errors, wrap between words.
LONG = 24
# Ends the titles of tables and charts of runs with more ranks than cores.
OVERSUBSCRIBED = "oversubscribed: not a scaling measurement"

Cell = float | str | None
Subject = TypeVar("Subject")


class Column(NamedTuple, Generic[Subject]):
    """A column: its heading, with its unit, how it computes its cell from the subject of a row, and the format of its numbers."""

    name: str
    value_of: Callable[[Subject], Cell]
    form: str = ""

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


def filled(title: str, columns: Sequence[Column[Subject]], subjects: Iterable[Subject]) -> list[Table]:
    """Returns the table with a row for each subject, in a list; an empty list where there are no subjects."""
    rows = [tuple(column.value_of(subject) for column in columns) for subject in subjects]
    return [Table(title, columns, rows)] if rows else []


def open_console() -> Console:
    """Returns the console of standard output, which cuts nothing where it is not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


def print_tables(tables: Iterable[Table], lines: Iterable[str] = (), console: Console | None = None) -> None:
    """Prints tables, each with as many columns as fit, and lines of text below them."""
    console = console or open_console()
    for table in tables:
        console.print(_drawn(table, console.width))
    for line in lines:
        print_line(console, line)


def print_line(console: Console, text: str, style: str = "") -> None:
    """Prints a text, which may be broken into lines by the terminal alone."""
    console.print(Text(printable(text), style=style), soft_wrap=True)


def _drawn(table: Table, width: int) -> DrawnTable | Group:
    """Returns the table with as many columns as fit without truncation; the rest are named below it."""
    names = [column.name for column in table.columns]
    rows = [[printable(text) for text in texts] for texts in table.texts]
    numeric = table.numeric_columns
    widths = _widths([(name, *texts) for name, *texts in zip(names, *rows, strict=True)], width)
    left_out = ", ".join(names[len(widths) :])
    caption = Text(f"terminal too narrow for: {left_out}") if left_out else None
    drawn = DrawnTable(title=Text(printable(table.title)), title_justify="left")
    for index, column_width in enumerate(widths):
        drawn.add_column(names[index], justify="right" if index in numeric else "left", width=column_width)
    for texts in rows:
        drawn.add_row(*map(Text, texts[: len(widths)]))
    return Group(drawn, caption) if caption else drawn


def _widths(columns: Sequence[Sequence[str]], width: int) -> list[int]:
    """Returns the widths of as many columns (each its heading and texts) as fit; spare width goes to the columns that need more."""
    least = [_needed_width(*column) for column in columns]
    fitting = [sum(least[:number]) + number * COLUMN_OVERHEAD + TABLE_OVERHEAD <= width for number in range(1, len(columns) + 1)]
    widths = least[: max(sum(fitting), 1)]
    spare = width - sum(widths) - len(widths) * COLUMN_OVERHEAD - TABLE_OVERHEAD
    for index, column in enumerate(columns[: len(widths)]):
        extra = max(0, min(spare, max(map(len, column)) - widths[index]))
        widths[index] += extra
        spare -= extra
    return widths


def _needed_width(name: str, *texts: str) -> int:
    unbroken = [part for text in texts for part in ([text] if len(text) <= LONG else text.split())]
    return max(map(len, (*unbroken, *name.split())))

"""Tables and lines on a terminal: whatever prints a table does it here."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

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
# The format of the numbers of a column by what its heading has, such as a unit: the first that matches counts.
FORMATS = {
    re.compile(heading): form
    for heading, form in {
        "difference|bound|micro-batches": ".1e",
        "accuracy": ".4f",
        "ratio|over own|speed-up|gain": ".2f",
        "seconds per epoch": ".3f",
        r"share of (peak|the step)|samples read|\(MiB\)|^epochs": ".1f",
        "TFLOP": ".4g",
        r"\((s|ms|[MGT]B)\)": ".2f",
        r"/s|\((%|J)\)": ".0f",
        "": ".4g",
    }.items()
}

Cell = float | str | None


class Table(NamedTuple):
    """A title and rows of cells by the headings of their columns, which have the units."""

    title: str
    rows: Sequence[Mapping[str, Cell]]

    @property
    def headings(self) -> list[str]:
        """The headings of the columns, of which one without any value is left out."""
        every_heading = dict.fromkeys(heading for row in self.rows for heading in row)
        return [heading for heading in every_heading if any(row.get(heading) is not None for row in self.rows)]

    @property
    def texts(self) -> list[list[str]]:
        """The rows as texts."""
        return [[text_of(heading, row.get(heading)) for heading in self.headings] for row in self.rows]

    @property
    def numeric_headings(self) -> set[str]:
        """The headings of the columns that have a number."""
        return {heading for row in self.rows for heading, cell in row.items() if isinstance(cell, (int, float))}


def text_of(heading: str, cell: Cell) -> str:
    """Returns a cell as text, a number in the format of its column; an unknown value is a dash."""
    if isinstance(cell, float):
        return format(cell, next(form for pattern, form in FORMATS.items() if pattern.search(heading)))
    return "-" if cell is None else str(cell)


def filled(title: str, rows: Iterable[Mapping[str, Cell]]) -> list[Table]:
    """Returns the table of rows in a list; an empty list where there are none."""
    rows = list(rows)
    return [Table(title, rows)] if rows else []


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
    headings, numeric = table.headings, table.numeric_headings
    rows = [[printable(text) for text in texts] for texts in table.texts]
    widths = _widths([(heading, *texts) for heading, *texts in zip(headings, *rows, strict=True)], width)
    left_out = ", ".join(headings[len(widths) :])
    caption = Text(f"terminal too narrow for: {left_out}") if left_out else None
    drawn = DrawnTable(title=Text(printable(table.title)), title_justify="left")
    for heading, column_width in zip(headings, widths, strict=False):
        drawn.add_column(heading, justify="right" if heading in numeric else "left", width=column_width)
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


def _needed_width(heading: str, *texts: str) -> int:
    unbroken = [word for text in texts for word in ([text] if len(text) <= LONG else text.split())]
    return max(map(len, (*unbroken, *heading.split())))

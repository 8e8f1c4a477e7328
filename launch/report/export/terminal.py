"""The answer on a terminal."""

from collections.abc import Collection, Iterable, Sequence

from rich.console import Console, Group
from rich.table import Table as DrawnTable
from rich.text import Text

from common.errors import printable
from launch.report.summary import Answer
from launch.report.tables import Table

# Used where the output is not a terminal.
PLAIN_WIDTH = 240
# Padding and border of each column, and the border at the end.
COLUMN_OVERHEAD, TABLE_OVERHEAD = 3, 1
# Longer texts, such as errors, wrap between words.
LONG = 24


def open_console() -> Console:
    """Returns the console of standard output, which cuts nothing where it is not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


def show(answer: Answer, console: Console | None = None, tables: Collection[str] | None = None) -> None:
    """Prints the answer: questions with sentences and tables, and the headline last, beside the prompt.

    With `tables` only the tables of the sections with these keys are shown.
    """
    console = console or open_console()
    for section in answer.sections:
        _print(console, section.question, style="bold")
        for sentence in (*section.sentences, *section.details):
            _print(console, sentence)
        for table in section.tables if tables is None or section.key in tables else ():
            console.print(_drawn(table, console.width))
        console.print()
    for note in answer.notes:
        _print(console, note)
    for sentence in answer.headline:
        _print(console, sentence, style="bold")


def show_result(tables: Iterable[Table], lines: Iterable[str]) -> None:
    """Prints tables, and lines of text below them."""
    console = open_console()
    for table in tables:
        console.print(_drawn(table, console.width))
    for line in lines:
        _print(console, line)


def _print(console: Console, text: str, style: str = "") -> None:
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

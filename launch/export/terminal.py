"""The answer on a terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

# Without a terminal there is no width to fit into, and a cut table is of no use.
PLAIN_WIDTH = 240


def show(answer, console=None, tables=None):
    """Prints the answer: questions with their sentences and tables, and at the end, where a reader looks, what came first.

    `tables` are the keys of the sections whose tables are shown; None: all.
    """
    console = console or Console()
    console = console if console.is_terminal else Console(width=PLAIN_WIDTH)
    for section in answer.sections:
        _say(console, section.question, style="bold")
        for sentence in section.sentences:
            _say(console, sentence)
        for table in section.tables if tables is None or section.key in tables else ():
            console.print(_drawn(table))
        console.print()
    for note in answer.notes:
        _say(console, note)
    for sentence in answer.headline:
        _say(console, sentence, style="bold")


def _say(console, text, style=""):
    console.print(Text(text, style=style), soft_wrap=True)


def _drawn(table):
    drawn = Table(title=Text(table.title), title_justify="left")
    for index, column in enumerate(table.columns):
        is_number = any(isinstance(row[index], (int, float)) for row in table.rows)
        drawn.add_column(column.name, justify="right" if is_number else "left")
    for texts in table.texts:
        drawn.add_row(*map(Text, texts))
    return drawn

"""The answer on a terminal."""

from rich.console import Console

from common.terminal import open_console, print_line, print_tables
from launch.report.summary import Answer


def show(answer: Answer, console: Console | None = None) -> None:
    """Prints the answer: questions with sentences and tables, and the headline last, beside the prompt."""
    console = console or open_console()
    for section in answer.sections:
        print_line(console, section.question, style="bold")
        for sentence in (*section.sentences, *section.details):
            print_line(console, sentence)
        print_tables(section.tables, console=console)
        console.print()
    for note in answer.notes:
        print_line(console, note)
    for sentence in answer.headline:
        print_line(console, sentence, style="bold")

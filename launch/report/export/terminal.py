"""The whole report on a terminal."""

from rich.console import Console

from common.terminal import open_console, print_line, print_tables
from launch.report.report import Report


def show(report: Report, console: Console | None = None) -> None:
    """Prints the report: questions with sentences and tables, and the headline last, beside the prompt."""
    console = console or open_console()
    for section in report.sections:
        print_line(console, section.question, style="bold")
        for sentence in (*section.sentences, *section.details):
            print_line(console, sentence)
        print_tables(section.tables, console=console)
        console.print()
    for note in report.notes:
        print_line(console, note)
    for sentence in report.headline:
        print_line(console, sentence, style="bold")

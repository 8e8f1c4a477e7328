"""Compares the backends of a folder of records: time to solution with intervals, scaling, cost, step breakdown, failures."""

import functools
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from common import command_line
from common.command_line import Positional
from common.declarations import SHELL_PYTHON
from common.errors import UserError
from launch.report import runs, table
from launch.report.answer import as_json
from launch.report.export import markdown, output_files, screen
from launch.report.questions import baseline
from launch.report.report import Report, report_of

EXPORTS = ("--markdown", "--csv", "--html", "--svg")
REGRESSED = 3
PROGRAM = f"{SHELL_PYTHON} -m launch.compare"
# A longer command, with the names of many files, is not repeated.
LONGEST_COMMAND = 80


@dataclass(frozen=True)
class Arguments:
    """What to compare, and what to write."""

    results: Annotated[tuple[Path, ...], Positional]
    """Records or folders of records, of one machine."""
    full: bool = False
    """Print every question with its sentences and tables. Default: the answer on one screen."""
    json: bool = False
    """Print the answer as JSON, for scripts, and nothing else."""
    markdown: Path | None = None
    """Write the report as Markdown."""
    csv: Path | None = None
    """Write all measurements as CSV, one line per run."""
    html: Path | None = None
    """Write the report as one self-contained page with charts."""
    svg: Path | None = None
    """Write the charts of the answer as a picture."""
    baseline: tuple[Path, ...] = ()
    """Earlier records, or those of another machine, such as results/reference/zen5-default, with which the results are compared. Exit
    status 3 where one is worse."""


def requested(arguments: Arguments) -> dict[str, Path]:
    """Returns the paths of those of EXPORTS that were asked for."""
    return {option: path for option in EXPORTS if (path := getattr(arguments, option.removeprefix("--")))}


def exported(option: str, report: Report) -> str:
    """Returns the text of the file of an option. Only a page and a picture take the time to import Altair."""
    match option:
        case "--markdown":
            return markdown.text(report)
        case "--csv":
            return table.csv_text(report.runs.compared)
        case "--html":
            from launch.report.export import html

            return html.text(report)
        case _:
            from launch.report.export import charts

            return charts.picture(report)


def show(report: Report, arguments: Arguments) -> None:
    """Prints the whole report, or the answer on one screen after what changed against the baseline."""
    if arguments.full:
        screen.show_report(report)
        return
    if arguments.json:
        print(as_json(report.machine, report.answer))
        return
    screen.show_sections(section for section in report.sections if section.key == baseline.KEY)
    command = shlex.join([*PROGRAM.split(), *map(str, arguments.results), "--full"])
    screen.show(report.answer, [f"all tables: {command if len(command) <= LONGEST_COMMAND else f'{PROGRAM} RECORDS --full'}"])


def run(arguments: Arguments) -> int:
    """Writes the outputs, prints the report and returns the exit status. Raises UserError for a usage error, before anything is written."""
    exports = requested(arguments)
    output_files.check_all(exports)
    records, damaged = runs.collect(arguments.results)
    earlier, damaged_before = runs.collect(arguments.baseline) if arguments.baseline else ([], [])
    report = report_of(records, [*damaged, *damaged_before])
    changed = baseline.compare(records, earlier) if earlier else None
    if changed:
        report = report._replace(sections=[baseline.section(changed), *report.sections])
    failures = output_files.write_all({path: functools.partial(exported, option, report) for option, path in exports.items()})
    show(report, arguments)
    if failures:
        raise UserError(failures)
    return REGRESSED if changed and baseline.worse(changed.changes) else 0


def main() -> None:
    """Runs the program."""
    command_line.main(run, Arguments, PROGRAM, __doc__ or "")


if __name__ == "__main__":
    main()

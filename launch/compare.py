"""Compares the backends of a folder of records: time to solution with intervals, scaling, cost, step breakdown, failures."""

import contextlib
import functools
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from common import command_line
from common.command_line import Positional
from common.declarations import PYTHON
from common.errors import UserError
from common.record.files import paths_in
from common.words import listed
from launch.report import comparable
from launch.report.answer import Answer, answer_of
from launch.report.export import json, markdown, output_files, screen
from launch.report.live import RELOAD_SECONDS
from launch.report.questions import baseline
from launch.report.report import Report, collect, report_of

EXPORTS = ("--markdown", "--csv", "--html", "--svg")
REGRESSED = 3
POLL_SECONDS = 1.0
PROGRAM = f"{PYTHON} -m launch.compare"
# The sections that options add to the answer.
ASKED_FOR = ("baseline",)
# A longer command, with the names of many files, is not repeated.
LONGEST_COMMAND = 80


@dataclass(frozen=True)
class Arguments:
    """What to compare, and what to write."""

    results: Annotated[tuple[Path, ...], Positional]
    """Records or folders of records. Those of several machines give the ratios to the fastest on each, and no other answer."""
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
    """Earlier records, or those of another machine, such as results/reference/zen5-default, with which the results are compared: each
    folder by itself, and all files together. Exit status 3 where one is worse."""
    watch: bool = False
    """Rewrite the page of --html whenever a record is added, until Ctrl-C."""


def watch(arguments: Arguments) -> int:
    """Rewrites the page whenever a record is added or changed, until interrupted."""
    if not arguments.html:
        raise UserError("--watch keeps a page up to date; say with --html FILE which")
    if refused := [option for option in requested(arguments, *EXPORTS, "--baseline") if option != "--html"]:
        raise UserError(f"--watch writes the page of --html and nothing else; leave out {listed(refused)}")
    shown = None
    try:
        while True:
            modified = modification_times(arguments.results)
            if modified != shown:
                shown = modified
                refresh(arguments.results, arguments.html, RELOAD_SECONDS)
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        refresh(arguments.results, arguments.html, None)
    return 0


def modification_times(paths: Sequence[Path]) -> dict[Path, int]:
    """Returns the modification time of each file, to detect new and changed records. Raises UserError where a path is missing."""
    times = {}
    for path in (file for source in paths for file in paths_in(source, [])):
        with contextlib.suppress(OSError):
            times[path] = path.stat().st_mtime_ns
    return times


def requested(arguments: Arguments, *options: str) -> dict[str, Any]:
    """Returns the values of those of the options that were given."""
    return {option: value for option in options if (value := getattr(arguments, option.removeprefix("--"))) not in (None, (), False)}


def refresh(results: Sequence[Path], page: Path, reload_seconds: int | None) -> None:
    """Writes the page of the current records and prints their number; prints the reason where there is none or they are not comparable."""
    output_files.check(page, "--html")
    try:
        report = report_of(*collect(results))
    except UserError as problem:
        print(f"{problem}; waiting", flush=True)
        return
    output_files.write(page, exported("--html", report, answer_of(report), reload_seconds))
    num_runs = len(report.runs)
    print(f"{page}: {num_runs} run{'' if num_runs == 1 else 's'}", flush=True)


def exported(option: str, report: Report, answer: Answer, reload_seconds: int | None = None) -> str:
    """Returns the text of the file of an option. Only a page and a picture take the time to import Altair."""
    match option:
        case "--markdown":
            return markdown.text(report)
        case "--csv":
            # Of all that a report needs, only its flat table needs polars, which is large.
            from launch.report.export import csv

            return csv.text(report)
        case "--html":
            from launch.report.export import html

            return html.text(report, answer, reload_seconds)
        case _:
            from launch.report.export import charts

            return charts.picture(report, answer)


def show(report: Report, answer: Answer, arguments: Arguments) -> None:
    """Prints the whole report, or the answer on one screen after what was asked for beside it."""
    if arguments.full:
        screen.show_report(report)
        return
    if arguments.json:
        print(json.text(answer))
        return
    screen.show_report(
        report._replace(sections=[section for section in report.sections if section.key in ASKED_FOR], notes=[], headline=[])
    )
    command = shlex.join([*PROGRAM.split(), *map(str, arguments.results), "--full"])
    screen.show(answer, [f"all tables: {command if len(command) <= LONGEST_COMMAND else f'{PROGRAM} RECORDS --full'}"])


def run(arguments: Arguments) -> int:
    """Writes the outputs, prints the report and returns the exit status. Raises UserError for a usage error, before anything is written."""
    if arguments.watch:
        return watch(arguments)
    exports = requested(arguments, *EXPORTS)
    output_files.check_all(exports)
    records, damaged = collect(arguments.results)
    if arguments.baseline:
        comparable.check_one_machine(records)
    comparisons = []
    for paths in baseline.sets(arguments.baseline):
        earlier, damaged_before = collect(paths)
        damaged += damaged_before
        comparisons.append(baseline.compare(records, earlier))
    report = report_of(records, damaged)
    if comparisons:
        report = report._replace(sections=[baseline.section(comparisons), *report.sections])
    answer = answer_of(report)
    failures = output_files.write_all({path: functools.partial(exported, option, report, answer) for option, path in exports.items()})
    show(report, answer, arguments)
    if failures:
        raise UserError(failures)
    return REGRESSED if any(baseline.worse(compared.changes) for compared in comparisons) else 0


def main() -> None:
    """Runs the program."""
    command_line.main(run, Arguments, PROGRAM, __doc__ or "")


if __name__ == "__main__":
    main()

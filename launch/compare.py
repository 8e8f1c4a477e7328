"""Records -> the answer: who reached the target first, how sure that is, how each scales, what it costs, what failed."""

import argparse
import os
import sys
import time
from pathlib import Path

from common.errors import UserError
from launch.report import collect, regressions, summary
from launch.report.export import csv, files, html, markdown, mllog, svg, terminal
from launch.report.tables import listed

EXPORTERS = {"--markdown": markdown.text, "--csv": csv.text, "--html": html.text, "--svg": svg.text}
REGRESSED = 3
LOOK_SECONDS = 1.0
RELOAD_SECONDS = 5


def show(found, console=None):
    """Prints the short answer to the records of a matrix: every sentence, and the first question's tables."""
    terminal.show(summary.answer(found), console, tables=("first",))


def write_page(path, found, reload_seconds=None):
    """Writes the page of the records of a matrix. Where it cannot be written, that is told, and the matrix goes on."""
    try:
        files.write(path, html.text(summary.answer(found), reload_seconds))
    except (UserError, OSError) as problem:
        print(f"the page {path} was not written: {problem}", file=sys.stderr)


def watch(arguments):
    """Writes the page again whenever a record comes or changes, until interrupted."""
    if not arguments.html:
        raise UserError("--watch keeps a page up to date; say with --html FILE which")
    if others := [option for option in given(arguments) if option != "--html"]:
        raise UserError(f"--watch writes the page of --html and nothing else; leave out {listed(others)}")
    seen = None
    try:
        while True:
            now = collect.state(arguments.results)
            if now != seen:
                seen = now
                refresh(arguments, RELOAD_SECONDS)
            time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        refresh(arguments, None)
    return 0


def given(arguments):
    """{option: path} of what is asked for beside the answer on the terminal."""
    return {option: path for option in (*EXPORTERS, "--mllog", "--baseline") if (path := getattr(arguments, option.strip("-")))}


def check_paths(wanted):
    """Raises UserError where one of {option: path} cannot be written, or is to be written twice."""
    first = {}
    for option, path in wanted.items():
        files.check(path, option)
        if (other := first.setdefault(os.path.realpath(path), option)) != option:
            raise UserError(f"{other} and {option} are both {path}; give each a file of its own")


def refresh(arguments, reload_seconds):
    """Writes the page of what records there are, and says so; says why where there is none yet, or they may not be mixed."""
    files.check(arguments.html, "--html")
    try:
        answer = summary.answer(*collect.collect(arguments.results))
    except UserError as problem:
        print(f"{problem}; waiting", flush=True)
        return
    files.write(arguments.html, html.text(answer, reload_seconds))
    num_runs = sum(len(entry.runs) for one in answer.comparisons for entry in one.entries)
    print(f"{arguments.html}: {num_runs} run{'' if num_runs == 1 else 's'}", flush=True)


def run(arguments):
    """Exports, prints, and returns the exit status. Raises UserError for a mistake, before anything is written."""
    if arguments.watch:
        return watch(arguments)
    wanted = {option: path for option, path in given(arguments).items() if option in EXPORTERS}
    check_paths(wanted)
    found, damaged = collect.collect(arguments.results)
    changes = None
    if arguments.baseline:
        old, damaged_before = collect.collect([arguments.baseline])
        damaged += damaged_before
        changes = regressions.changes(found, old)
    answer = summary.answer(found, damaged)
    if changes is not None:
        answer = answer._replace(sections=[regressions.section(changes), *answer.sections])
    texts = {path: EXPORTERS[option](answer) for option, path in wanted.items()}
    if arguments.mllog:
        mllog.write_all(answer, arguments.mllog)
    for path, text in texts.items():
        files.write(path, text)
    terminal.show(answer)
    return REGRESSED if changes and regressions.worse(changes) else 0


def main():
    parser = argparse.ArgumentParser(prog="python -m launch.compare", description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path, help="records, or folders of records")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the answer as Markdown")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write all that was measured as CSV, one line a run")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the answer as one page with charts, which needs no network")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the page's first chart as a picture")
    parser.add_argument("--mllog", type=Path, metavar="FOLDER", help="write an event log for each run, as MLPerf has them")
    parser.add_argument(
        "--baseline", type=Path, metavar="OLD", help="a record or folder of an earlier matrix; exit status 3 where something got worse"
    )
    parser.add_argument("--watch", action="store_true", help="keep the page of --html up to date as records come, until Ctrl-C")
    try:
        sys.exit(run(parser.parse_args()))
    except UserError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

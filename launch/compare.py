"""Compares the backends of a folder of records: time to solution with intervals, scaling, cost, step breakdown, failures."""

import argparse
import os
import sys
import time
from pathlib import Path

from common.errors import UserError
from launch.forecast import page, wish
from launch.report import collect, regressions, summary
from launch.report.export import csv, files, html, markdown, svg, terminal
from launch.report.words import listed

EXPORTERS = {"--markdown": markdown.text, "--csv": csv.text, "--html": html.text, "--svg": svg.text}
REGRESSED = 3
POLL_SECONDS = 1.0
RELOAD_SECONDS = 5


def show(found, console=None):
    """Prints the short report of a matrix: every sentence, and the tables of time to solution."""
    terminal.show(summary.answer(found), console, tables=("first",))


def write_page(path, found, reload_seconds=None):
    """Writes the page of a matrix. Where that fails, prints a message and returns, so that the matrix continues."""
    try:
        files.write(path, html.text(summary.answer(found), reload_seconds))
    except (UserError, OSError) as problem:
        print(f"{path} was not written: {problem}", file=sys.stderr)


def watch(arguments):
    """Rewrites the page whenever a record is added or changed, until interrupted."""
    if not arguments.html:
        raise UserError("--watch keeps a page up to date; say with --html FILE which")
    forecast = [f"--{name}" for name in ("predict", "price") if getattr(arguments, name) is not None]
    if others := [option for option in (*requested(arguments), *forecast) if option != "--html"]:
        raise UserError(f"--watch writes the page of --html and nothing else; leave out {listed(others)}")
    seen = None
    try:
        while True:
            now = collect.state(arguments.results)
            if now != seen:
                seen = now
                refresh(arguments, RELOAD_SECONDS)
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        refresh(arguments, None)
    return 0


def requested(arguments):
    """{option: path} of the requested outputs, and of --baseline."""
    return {option: path for option in (*EXPORTERS, "--baseline") if (path := getattr(arguments, option.strip("-")))}


def check_paths(wanted):
    """Raises UserError where one of {option: path} cannot be written, or two are the same file."""
    first = {}
    for option, path in wanted.items():
        files.check(path, option)
        if (other := first.setdefault(os.path.realpath(path), option)) != option:
            raise UserError(f"{other} and {option} are both {path}; name different files")


def refresh(arguments, reload_seconds):
    """Writes the page of the current records and prints their number; prints the reason where there is none or they are not comparable."""
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
    """Writes the outputs, prints the report, returns the exit status. Raises UserError for a usage error, before anything is written."""
    if arguments.watch:
        return watch(arguments)
    wanted = {option: path for option, path in requested(arguments).items() if option in EXPORTERS}
    check_paths(wanted)
    asked = None
    if arguments.price is not None and arguments.predict is None:
        raise UserError("--price is for a forecast; say with --predict RANKS of which sizes")
    if arguments.predict is not None:
        asked = wish.Wish(wish.sizes_of(arguments.predict, "--predict"), price=arguments.price)
        wish.check(asked, "--predict")
    found, damaged = collect.collect(arguments.results)
    changes = None
    if arguments.baseline:
        old, damaged_before = collect.collect([arguments.baseline])
        damaged += damaged_before
        changes = regressions.changes(found, old)
    answer = summary.answer(found, damaged)
    if asked:
        answer = page.with_forecasts(answer, asked)
    if changes is not None:
        answer = answer._replace(sections=[regressions.section(changes), *answer.sections])
    texts = {path: EXPORTERS[option](answer) for option, path in wanted.items()}
    for path, text in texts.items():
        files.write(path, text)
    terminal.show(answer)
    return REGRESSED if changes and regressions.worse(changes) else 0


def main():
    parser = argparse.ArgumentParser(prog="python -m launch.compare", description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path, help="records or folders of records")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the report as Markdown")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write all measurements as CSV, one line per run")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as one self-contained page with charts")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the chart of time to solution as a picture")
    parser.add_argument(
        "--baseline", type=Path, metavar="OLD", help="a record or folder of an earlier matrix; exit status 3 for a regression"
    )
    parser.add_argument(
        "--predict", metavar="RANKS", help="also forecast these numbers of ranks, such as 16,64,1024; launch.predict has more options"
    )
    parser.add_argument("--price", type=float, help="with --predict: price of an hour of a core, or of a GPU where the runs used GPUs")
    parser.add_argument("--watch", action="store_true", help="rewrite the page of --html whenever a record is added, until Ctrl-C")
    try:
        sys.exit(run(parser.parse_args()))
    except UserError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

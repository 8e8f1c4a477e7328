"""Records -> one table: who reached the target first, how fast each was, and whether they trained the same thing."""

import argparse
import sys
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from common import records
from common.config import MATHEMATICS
from common.errors import UserError
from launch.plan import BASELINE

COLUMNS = (
    "workload", "backend", "ranks", "time to solution (s)", "accuracy", "samples/s", "samples/s vs own 1 rank",
    "speed-up vs own 1 rank", f"speed-up vs {BASELINE}", "peak memory per rank (MiB)", "in sync",
)  # fmt: skip


def same_training(found):
    """Raises UserError where records are of several machines, or those of one workload and scaling trained different things."""
    machines = sorted({record["settings"]["machine"] for record in found})
    if len(machines) > 1:
        raise UserError(f"these records are of several machines ({', '.join(machines)}); compare one machine at a time")
    first = {}
    for record in found:
        if not record["workload_digest"]:
            continue
        kind = (record["workload"], record["scaling"])
        other = first.setdefault(kind, record)
        if other["workload_digest"] != record["workload_digest"]:
            names = [
                name
                for name, value in record["settings"].items()
                if name in (*MATHEMATICS, "epochs") and name != "rate_factor" and value != other["settings"][name]
            ]
            raise UserError(
                f"{record['settings']['run_id']} and {other['settings']['run_id']} trained different things "
                f"({', '.join(names) or 'their data or rate factors differ'}); compare them apart"
            )


def rows(found):
    """The rows of the table, as dicts by COLUMNS, from records of one or more repeats. Numbers are medians over the repeats.

    A speed-up is a ratio of times to solution. None where a number is not there: the target was not reached, nothing
    to compare with was run, or more ranks than cores make it no measure of scaling.
    """
    same_training(found)
    groups = {}
    for record in found:
        groups.setdefault((record["workload"], record["scaling"], record["backend"], record["ranks"]), []).append(record)
    summaries = {key: _summary(group) for key, group in groups.items()}
    table = []
    for (workload, scaling, backend, ranks), summary in sorted(
        summaries.items(), key=lambda item: (*item[0][:2], item[0][2] != BASELINE, item[0][2], item[0][3])
    ):
        own = summaries.get((workload, scaling, backend, 1))
        single = summaries.get((workload, scaling, BASELINE, 1))
        scales = not summary["oversubscribed"]
        values = (
            workload if scaling == "weak" else f"{workload} ({scaling})",
            backend,
            ranks if scales else f"{ranks} (oversubscribed)",
            summary["time"] or summary["instead"],
            summary["accuracy"],
            summary["rate"],
            _ratio(summary["rate"], own and own["rate"]) if scales else None,
            _ratio(own and own["time"], summary["time"]) if scales else None,
            _ratio(single and single["time"], summary["time"]) if scales else None,
            summary["memory"],
            summary["in_sync"],
        )
        table.append(dict(zip(COLUMNS, values, strict=True)))
    return table


def _summary(group):
    ok = [record for record in group if record["status"] == "ok"]
    # A run that went on from a snapshot has reached its target, and has no time to solution.
    reached = [record for record in ok if record["reached"] and record["time_to_solution_seconds"] is not None]
    # `reached` is None where there is no target to reach.
    failed = [record for record in group if record not in reached and (record["status"] != "ok" or record["reached"] is not None)]
    states = [record["status"] if record["status"] != "ok" else "resumed" if record["reached"] else "not reached" for record in failed]
    return {
        # A median over the lucky repeats only would be no answer.
        "time": median(record["time_to_solution_seconds"] for record in reached) if reached and not states else None,
        "instead": f"{states[0]}{f' ({len(states)} of {len(group)})' if len(group) > 1 else ''}" if states else None,
        "accuracy": median(record["accuracy"] for record in ok) if ok and ok[0]["accuracy"] is not None else None,
        "rate": median(record["samples_per_second"] for record in ok) if ok else None,
        "memory": max(record["peak_memory_bytes"] for record in ok) / 2**20 if ok else None,
        "oversubscribed": any(record["oversubscribed"] for record in group),
        "in_sync": _all(record["in_sync"] for record in group),
    }


def _all(values):
    values = list(values)
    return "no" if False in values else "yes" if True in values else None


def _ratio(above, below):
    return above / below if above and below else None


FORMATS = {"time to solution (s)": "{:.2f}", "accuracy": "{:.4f}", "samples/s": "{:.0f}", "peak memory per rank (MiB)": "{:.0f}"}


def cells(row):
    """The row as texts."""
    texts = []
    for name in COLUMNS:
        value = row[name]
        if isinstance(value, float):
            value = FORMATS.get(name, "{:.2f}x").format(value)
        texts.append("-" if value is None else str(value))
    return texts


def first_to_target(table):
    """One sentence a workload: which backend, at which size, reached the target first."""
    sentences = []
    for workload in dict.fromkeys(row["workload"] for row in table):
        times = [row for row in table if row["workload"] == workload and isinstance(row["time to solution (s)"], float)]
        if times:
            best = min(times, key=lambda row: row["time to solution (s)"])
            sentences.append(
                f"{workload}: {best['backend']} at {best['ranks']} rank{'' if best['ranks'] == 1 else 's'} reached the target first, "
                f"in {best['time to solution (s)']:.2f} s"
            )
        elif any(row["time to solution (s)"] for row in table if row["workload"] == workload):
            sentences.append(f"{workload}: no run reached the target")
        else:
            sentences.append(f"{workload}: has no target; it is for throughput alone")
    return sentences


def markdown(table):
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    return "\n".join([*lines, *("| " + " | ".join(cells(row)) + " |" for row in table)])


def show(found, console=None):
    """Prints the table and the answer."""
    table = rows(found)
    drawn = Table(*COLUMNS)
    for row in table:
        drawn.add_row(*cells(row))
    console = console or Console()
    # Without a terminal there is no width to fit into, and a cut table is of no use.
    console = console if console.is_terminal else Console(width=240)
    console.print(drawn)
    for sentence in first_to_target(table):
        console.print(sentence, highlight=False)


def main():
    parser = argparse.ArgumentParser(prog="python -m launch.compare", description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path, help="records, or folders of records")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    arguments = parser.parse_args()
    try:
        found = [record for path in arguments.results for record in records.read_all(path)]
        if not found:
            raise UserError(f"there is no record in {', '.join(map(str, arguments.results))}")
        if arguments.markdown:
            table = rows(found)
            print(markdown(table), *first_to_target(table), sep="\n")
        else:
            show(found)
    except UserError as mistake:
        sys.exit(_fail(mistake))


def _fail(mistake):
    print(f"error: {mistake}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()

"""Forecasts throughput and efficiency at other numbers of GPUs from two measured ones, with a band checked on published tables."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from common import command_line, terminal
from common.bounds import RANKS, Bounds
from common.command_line import Positional, names_in, shortened
from common.declarations import SHELL_PYTHON
from common.errors import UserError
from launch.forecast import tables
from launch.forecast.law import Forecast, Law, forecast, law_of
from launch.forecast.tables import Table

PROGRAM = f"{SHELL_PYTHON} -m launch.forecast"
# Sizes that are forecast where none are given, in doublings beyond the largest.
DEFAULT_DOUBLINGS = (1, 2, 3)

UNITS = {"gpus": "GPUs", "ranks": "ranks"}
# Where the efficiency is looked up: in steps of an eighth of a doubling, up to 64 times the largest size.
STEPS_PER_DOUBLING, NUM_DOUBLINGS = 8, 6
# The furthest forecast of a published table, over its largest size.
FURTHEST = 32
CLIFF = "A cliff at the edge of a node is not foreseen unless a measured size lies beyond it"


@dataclass(frozen=True)
class Arguments:
    """What was measured, and what is forecast."""

    table: Annotated[Path, Positional]
    """CSV with columns gpus (or ranks) and samples_per_second (or tokens; or seconds_per_epoch), and optional backend, scaling and machine.
    Without scaling, samples_per_second are of weak scaling (a fixed batch per GPU), and seconds_per_epoch of strong scaling (fixed work).
    Or a folder of records."""
    gpus: str | None = None
    """Numbers of GPUs, or of ranks, to forecast, separated by commas. Default: the next three doublings."""
    efficiency: Annotated[float, Bounds(above=0, at_most=1)] = 0.8
    """Say where the efficiency, which is 1 at the smallest size, falls below this."""
    gpus_per_node: Annotated[int | None, RANKS] = None
    """GPUs, or ranks, of a node: the band is narrower once a measured size lies beyond. Default: as the records say."""
    json: bool = False
    """Print JSON."""


def run(arguments: Arguments) -> int:
    """Prints the forecast and returns the exit status. Raises UserError, before anything is printed, where nothing can be forecast."""
    measured = tables.read(arguments.table)
    if arguments.gpus_per_node:
        measured = [table._replace(gpus_per_node=arguments.gpus_per_node) for table in measured]
    sizes = _sizes(arguments.gpus, max(table.largest for table in measured))
    answer = answer_of(measured, sizes, arguments.efficiency, law_of(tables.published()))
    if arguments.json:
        print(json.dumps(answer._asdict(), indent=2))
    else:
        terminal.print_tables(*screen(answer))
    return 0


def _sizes(text: str | None, largest: int) -> list[int]:
    """Returns the sizes to forecast, ascending. Raises UserError for what is not above the largest measured size."""
    names = [str(largest * 2**doublings) for doublings in DEFAULT_DOUBLINGS] if text is None else names_in(text)
    for name in names or [""]:
        if not name.isdecimal() or len(name) > 9 or RANKS.problem(int(name)):
            raise UserError(f"--gpus has {shortened(name)!r}; give numbers of GPUs such as 64,128, at most {RANKS.at_most}")
        if int(name) <= largest:
            raise UserError(f"--gpus has {name}; give sizes above {largest}, the largest that was measured")
    return sorted(set(map(int, names)))


class Answer(NamedTuple):
    """Forecasts and what follows from them, as rows whose values are those of --json; `notes` are sentences.

    A size in `efficiency_below` is None where it lies further than 64 times the largest measured one.
    """

    forecasts: list[dict[str, Any]]
    measure_next: list[dict[str, Any]]
    efficiency_below: list[dict[str, Any]]
    notes: list[str]


def answer_of(measured: Sequence[Table], sizes: Sequence[int], limit: float, law: Law) -> Answer:
    """Returns the forecasts of sizes above all measured ones, and what follows from them; `limit` is an efficiency."""
    usable = [table for table in measured if len(table.sizes) > 1]
    forecasts = [(table, [forecast(table, size, law) for size in sizes]) for table in usable]
    left_out = sorted({table.backend for table in measured} - {table.backend for table in usable})
    return Answer(
        [_row(table, row) for table, rows in forecasts for row in rows],
        [row for table, rows in forecasts for row in _next_size(table, rows, law)],
        [_below(table, limit, law) for table in usable],
        [*_notes(usable, sizes, law), *([f"Left out, as only one size was measured: {', '.join(left_out)}."] if left_out else [])],
    )


def screen(answer: Answer) -> tuple[list[terminal.Table], list[str]]:
    """Returns the tables of a screen, and the sentences below."""
    shown_tables: list[terminal.Table] = []
    for training, rows in groupby(answer.forecasts, key=lambda row: row["training"]):
        shown = [
            {
                "backend": row["backend"], row["unit"]: row["size"], row["value_name"].replace("_", " "): _figure(row["value"]),
                "90 % band": f"{_figure(row['low'])} to {_figure(row['high'])}", "efficiency": f"{row['efficiency']:.2f}",
                "its 90 % band": f"{row['efficiency_low']:.2f} to {row['efficiency_high']:.2f}",
            }
            for row in rows
        ]  # fmt: skip
        limits = [
            {
                "backend": row["backend"], f"efficiency falls below {row['limit']:g} at": row["size"] or "further",
                "90 % band": f"{row['earliest'] or 'further'} to {row['latest'] or 'further'}",
            }
            for row in answer.efficiency_below
            if row["training"] == training
        ]  # fmt: skip
        shown_tables += [terminal.Table(training, shown), terminal.Table("", limits)]
    return shown_tables, sentences(answer)


def sentences(answer: Answer) -> list[str]:
    """Returns which sizes to measure next, and the notes."""
    lines = []
    unit, largest = answer.forecasts[-1]["unit"], answer.forecasts[-1]["size"]
    for size in sorted({row["size"] for row in answer.measure_next}):
        rows = [row for row in answer.measure_next if row["size"] == size]
        who = "" if len(rows) == len(answer.efficiency_below) else f" with {', '.join(dict.fromkeys(row['backend'] for row in rows))}"
        now, then = (max(row[key] for row in rows) for key in ("width_now", "width_then"))
        lines.append(f"Measure {size} {unit} next{who}: the band at {largest} {unit} spans a factor of {now:.2f}, and then {then:.2f}.")
    return [*lines, *answer.notes]


def _figure(number: float) -> str:
    """Returns a number with four digits that count, and without an exponent."""
    return f"{float(f'{number:.4g}'):,.10g}"


def _row(table: Table, row: Forecast) -> dict[str, Any]:
    low, high = sorted(map(table.in_unit, (row.low, row.high)))
    return {
        "training": table.training, "backend": table.backend, "size": row.size, "unit": UNITS[table.size_name],
        "value": table.in_unit(row.throughput), "value_name": table.value, "low": low, "high": high,
        "efficiency": table.efficiency(row.size, row.throughput), "efficiency_low": table.efficiency(row.size, row.low),
        "efficiency_high": table.efficiency(row.size, row.high),
    }  # fmt: skip


def _next_size(table: Table, rows: Sequence[Forecast], law: Law) -> Iterator[dict[str, Any]]:
    """Returns the size whose measurement, if it turns out as forecast, narrows the band of the largest size most.

    It is a doubling below the sizes that are forecast, or else the smallest of these. There is none for a single size of twice the largest.
    """
    smallest, largest = rows[0].size, rows[-1]
    doublings = [table.largest * 2**number for number in range(1, 25)]
    widths = {}
    for size in [size for size in doublings if size < smallest] or ([smallest] if smallest < largest.size else []):
        measured = table._replace(throughputs={**table.throughputs, size: forecast(table, size, law).throughput})
        widths[size] = forecast(measured, largest.size, law).width
    for size in sorted(widths, key=lambda size: widths[size])[:1]:
        row = {"training": table.training, "backend": table.backend, "size": size}
        yield row | {"width_now": largest.width, "width_then": widths[size]}


def _below(table: Table, limit: float, law: Law) -> dict[str, Any]:
    """Returns the first size, measured or forecast, at which the efficiency is below the limit, with the ends of its band."""
    steps = range(1, STEPS_PER_DOUBLING * NUM_DOUBLINGS + 1)
    beyond = sorted({round(table.largest * 2 ** (step / STEPS_PER_DOUBLING)) for step in steps} - {table.largest})
    rows = [Forecast(size, throughput, throughput, throughput) for size, throughput in table.throughputs.items()]
    rows += [forecast(table, size, law) for size in beyond]
    first = {"training": table.training, "backend": table.backend, "limit": limit}
    for name, end in (("size", "throughput"), ("earliest", "low"), ("latest", "high")):
        first[name] = next((row.size for row in rows if table.efficiency(row.size, getattr(row, end)) < limit), None)
    return first


def _notes(measured: Sequence[Table], sizes: Sequence[int], law: Law) -> Iterable[str]:
    """Returns what the band was calibrated on, and what it does not foresee."""
    for scaling in dict.fromkeys(table.scaling for table in measured):
        num_tables = law.bands[scaling, None].num_tables
        yield f"The band of {scaling} scaling was calibrated on {num_tables} published tables (launch/forecast/README.md)."
    if any(table.gpus_per_node is None for table in measured):
        yield f"{CLIFF}; say with --gpus-per-node how many a node has."
    for gpus in sorted({table.gpus_per_node or sizes[-1] for table in measured if table.largest <= (table.gpus_per_node or 0)}):
        if gpus < sizes[-1]:
            yield f"{CLIFF}: measure {2 * gpus} {UNITS[measured[0].size_name]}, as your nodes have {gpus}."
    if sizes[-1] > FURTHEST * min(table.largest for table in measured):
        yield f"No published table was forecast at more than {FURTHEST} times its largest size: beyond, the band is a guess."


if __name__ == "__main__":
    command_line.main(run, Arguments, PROGRAM, __doc__ or "")

"""Forecasts of step time, throughput, efficiency and cost at more ranks than were measured."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from common import command_line
from common.command_line import RANKS
from common.record import reading
from launch.forecast.network import messages
from launch.forecast.scaling import answer, forecasts
from launch.forecast.scaling.forecasts import Wish, sizes_of
from launch.report import collect, comparable, entries, summary
from launch.report.export import files, terminal

PROGRAM = "python -m launch.predict"
DESCRIPTION = "Forecasts of step time, throughput, efficiency and cost at more ranks than were measured, each with its held-out error."


@dataclass(frozen=True)
class Arguments:
    """What to forecast, from what."""

    records: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Records or folders of records, of two sizes or more without oversubscription, with step breakdowns."""
    ranks: str | None = None
    """Numbers of ranks, separated by commas, up to 16 times the largest measured one. Default: its doublings, up to there."""
    ranks_per_node: Annotated[int | None, RANKS] = None
    """Ranks on each node. Default: as many as the largest measured size has on a node."""
    network: str | None = None
    """The network between nodes: alpha=2e-6,beta=25e9, the latency of a message in seconds and the bandwidth of a node's link in bytes per
    second (25e9: 200 Gbit/s); or a JSON file of launch.collectives. Default: as in the records, where that inside a node stands for it."""
    json: Path | None = None
    """Write all numbers as JSON."""


def run(arguments: Arguments) -> int:
    """Prints the forecasts, writes the files, returns the exit status. Raises UserError before anything is written."""
    sizes = None if arguments.ranks is None else sizes_of(arguments.ranks)
    network = messages.read(arguments.network) if arguments.network is not None else None
    wish = Wish(sizes, network, arguments.ranks_per_node)
    files.check_all({"--json": arguments.json})
    records, damaged = collect.collect(arguments.records)
    reading.report_damaged(damaged)
    plain, _ = entries.split_traced(records)
    comparable.check(plain)
    compared = entries.comparisons(plain)
    subjects, left_out = forecasts.of(compared, wish)
    section = answer.section(subjects, left_out)
    if arguments.json:
        files.write(arguments.json, json.dumps(answer.as_json(subjects, left_out), indent=1, allow_nan=False) + "\n")
    terminal.show(summary.Answer(comparable.machine_of(plain[0]), [], [section], [], compared))
    return 0


if __name__ == "__main__":
    command_line.main(run, Arguments, PROGRAM, DESCRIPTION)

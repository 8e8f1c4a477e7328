"""Forecasts throughput and efficiency at other numbers of GPUs from two measured ones, with a band checked on published tables."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Annotated

from common import command_line, durable
from common.bounds import RANKS, Bounds
from common.command_line import Positional, names_in, shortened
from common.declarations import PYTHON
from common.errors import UserError
from common.terminal import print_tables
from launch.forecast import answers, law, tables

PROGRAM = f"{PYTHON} -m launch.forecast"
# Sizes that are forecast where none are given, in doublings beyond the largest.
DEFAULT_DOUBLINGS = (1, 2, 3)


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
    page: Path | None = None
    """Write a page with a picture to this file."""
    json: bool = False
    """Print JSON."""


def run(arguments: Arguments) -> int:
    """Prints the forecast and returns the exit status. Raises UserError, before anything is printed, where nothing can be forecast."""
    measured = tables.read(arguments.table)
    if arguments.gpus_per_node:
        measured = [table._replace(gpus_per_node=arguments.gpus_per_node) for table in measured]
    sizes = _sizes(arguments.gpus, max(table.largest for table in measured))
    if arguments.page:
        if arguments.page.is_dir():
            raise UserError(f"--page {arguments.page} is a folder; give the name of a file")
        durable.expect_writable(arguments.page)
    answer = answers.answer_of(measured, sizes, arguments.efficiency, law.law_of(tables.published()))
    if arguments.page:
        durable.write_text(arguments.page, page(answer, measured))
    if arguments.json:
        print(json.dumps(answer._asdict(), indent=2))
    else:
        print_tables(*answers.screen(answer))
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


def page(answer: answers.Answer, measured: Sequence[tables.Table]) -> str:
    """Returns the page: a picture of efficiency by size, and the sentences."""
    # Altair takes a second to import.
    import altair
    import vl_convert

    marks = list(answer.forecasts)
    for table in measured:
        for size, throughput in table.throughputs.items():
            equal = dict.fromkeys(("efficiency", "efficiency_low", "efficiency_high"), table.efficiency(size, throughput))
            marks.append({"training": table.training, "backend": table.backend, "size": size, "measured": True, **equal})
    axis = altair.Axis(values=sorted({mark["size"] for mark in marks}), grid=False)
    x = altair.X("size:Q", title=answer.forecasts[0]["unit"], scale=altair.Scale(type="log", base=2), axis=axis)
    y, color = altair.Y("efficiency:Q", title="efficiency"), altair.Color("backend:N", title=None)
    line = altair.Chart().encode(x=x, y=y, color=color)
    ends = {"y": altair.Y("efficiency_low:Q", title="efficiency"), "y2": "efficiency_high:Q"}
    layers = altair.layer(
        altair.Chart().mark_area(opacity=0.2).encode(x=x, color=color, **ends),
        line.mark_line(),
        line.mark_point(filled=True, size=60, opacity=1).transform_filter("datum.measured"),
        data=altair.Data(values=marks),
    )
    picture = layers.properties(width=620, height=300).facet(row=altair.Row("training:N", title=None))
    below = "".join(f"<p>{escape(sentence)}</p>\n" for sentence in answers.sentences(answer))
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Forecast at other sizes</title></head>
<body style="font-family: sans-serif; max-width: 50em; margin: auto">
<h1>Forecast at other sizes</h1>
<p>Points are measured; lines and their 90 % bands are forecast.</p>
{vl_convert.vegalite_to_svg(picture.to_dict())}
{below}</body>
</html>
"""


if __name__ == "__main__":
    command_line.main(run, Arguments, PROGRAM, __doc__ or "")

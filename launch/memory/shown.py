"""A memory forecast as tables, picture and JSON. Pure."""

import json
from typing import NamedTuple

from common.memory_forecast import Forecast
from common.models import LAYERED
from launch.memory import described
from launch.report.export import colours, svg
from launch.report.tables import Column, Section, Table, filled

PARTS = {
    "parameters": colours.BLUE,
    "gradients": colours.ORANGE,
    "optimizer_state": colours.GREEN,
    "activations": colours.SKY,
    "buffers": colours.PURPLE,
}
UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6))
BAR_HEIGHT = 22
WIDEST_LETTER = 6.5
# Of a table of ranks; JSON has all of them.
MOST_COLUMNS = 16
LINES = (
    "Bytes of tensors on the rank that has most. all: the sum; peak: the most at once, since activations go as gradients come.",
    "Ranks that compute one model together (tensor_parallel, pipeline) have one batch; all others have a batch each.",
    "Programs, the allocator's reserve and the workspace of kernels come on top.",
)


class Row(NamedTuple):
    """The Forecast of a backend on the rank that needs most; `recomputed`: its activations with --recompute, None where that is no choice.

    `by_rank`: of a pipeline, the Forecasts of all ranks.
    """

    name: str
    num_ranks: int
    forecast: Forecast
    recomputed: float | None
    by_rank: list[Forecast]


class Page(NamedTuple):
    """What launch/report/export/terminal.py prints."""

    sections: list[Section]
    notes: list[str]
    headline: list[str]


def page(training, rows, left_out, fits, limit):
    """The Page of a forecast. `fits`: the Fits into `limit` bytes, if they were asked for. `left_out`: reasons."""
    tables = [_table(training, rows), *_stages(rows)]
    sections = [Section("memory", f"Memory per rank: {described.description(training)}", list(LINES), tables)]
    if fits:
        sections.append(Section("fits", f"What fits into {_text(limit)} per rank", [], [_table_of_fits(fits)]))
    notes = [f"left out: {reason}" for reason in left_out]
    return Page(sections, notes, [_headline(fits, limit)] if fits else [])


def _unit(rows):
    most = max(max(row.forecast.total, row.forecast.peak) for row in rows)
    return next(((name, size) for name, size in UNITS if most >= size), UNITS[-1])


def _text(size_bytes):
    name, size = next(((name, size) for name, size in UNITS if size_bytes >= size), UNITS[-1])
    return f"{size_bytes / size:.4g} {name}"


def _table(training, rows):
    unit, size = _unit(rows)
    with_recompute = [Column("with --recompute", ".3f")] if isinstance(training.model, LAYERED) and not training.recompute else []
    offloaded = [Column("main memory", ".3f")] if any(row.forecast.main_memory for row in rows) else []
    columns = (
        Column("backend"), Column("ranks"), *(Column(part.replace("_", " "), ".3f") for part in list(PARTS)[:4]), *with_recompute,
        Column("buffers", ".3f"), Column("all", ".3f"), Column("peak", ".3f"), *offloaded,
    )  # fmt: skip
    values = []
    for row in rows:
        one = row.forecast
        numbers = [one.parameters, one.gradients, one.optimizer_state, one.activations]
        numbers += [row.recomputed] * len(with_recompute) + [one.buffers, one.total, one.peak] + [one.main_memory] * len(offloaded)
        values.append((row.name, row.num_ranks, *(None if number is None else number / size for number in numbers)))
    return Table(f"Memory per rank ({unit})", columns, values)


def _stages(rows):
    """A table of the peaks of the ranks of each pipeline."""
    unit, size = _unit(rows)
    pipelines = [row for row in rows if 1 < len(row.by_rank) <= MOST_COLUMNS]
    num_ranks = max((len(row.by_rank) for row in pipelines), default=0)
    columns = (Column("backend"), *(Column(f"rank {rank}", ".3f") for rank in range(num_ranks)))
    peaks = {row.name: [one.peak / size for one in row.by_rank] for row in pipelines}
    values = [(name, *of_ranks, *[None] * (num_ranks - len(of_ranks))) for name, of_ranks in peaks.items()]
    return filled(f"Peak on each rank of a pipeline ({unit})", columns, values)


def _table_of_fits(fits):
    columns = (Column("backend"), Column("fits"), Column("peak (GB)", ".3f"), Column("largest model: width"), Column("parameters"),
               Column("fewest ranks"))  # fmt: skip
    values = [
        (one.name, "yes" if one.fits else "no", one.peak / 1e9, one.width, one.num_parameters and f"{one.num_parameters:.3g}",
         one.fewest_ranks)
        for one in fits
    ]  # fmt: skip
    return Table("What fits", columns, values)


def _headline(fits, limit):
    able = [one.name for one in fits if one.fits]
    return f"{len(able)} of {len(fits)} fit into {_text(limit)} per rank: {', '.join(able)}".removesuffix(": ")


def picture(training, rows):
    """Stacked bars of the parts by backend, with a mark at the peak, as SVG."""
    unit, size = _unit(rows)
    values = [
        {"backend": row.name, "part": part.replace("_", " "), "size": getattr(row.forecast, part) / size, "place": place}
        for row in rows for place, part in enumerate(PARTS)
    ]  # fmt: skip
    peaks = [{"backend": row.name, "peak": row.forecast.peak / size} for row in rows]
    # A viewer's font may be wider than the one that the picture is laid out with.
    extent = WIDEST_LETTER * max(len(row.name) for row in rows)
    axis = {"labelLimit": 2 * extent, "minExtent": extent}
    y = {"field": "backend", "type": "nominal", "sort": [row.name for row in rows], "title": None, "axis": axis}
    scale = {"domain": [part.replace("_", " ") for part in PARTS], "range": list(PARTS.values())}
    bars = {
        "mark": {"type": "bar"},
        "encoding": {
            "x": {"field": "size", "type": "quantitative", "stack": "zero", "title": f"memory per rank ({unit}); line: peak"},
            "y": y,
            "color": {"field": "part", "type": "nominal", "scale": scale, "legend": {"title": None, "orient": "top"}},
            "order": {"field": "place"},
        },
    }
    mark = {"type": "tick", "thickness": 2, "color": "#000", "size": BAR_HEIGHT - 4}
    ticks = {"data": {"values": peaks}, "mark": mark, "encoding": {"x": {"field": "peak", "type": "quantitative"}, "y": y}}
    title = {"text": described.description(training), "anchor": "start", "fontSize": 11, "fontWeight": "normal"}
    size = {"width": svg.WIDTH, "height": BAR_HEIGHT * len(rows)}
    return svg.picture(size | {"title": title, "data": {"values": values}, "layer": [bars, ticks]})


def as_json(training, rows, left_out, fits):
    """The forecast as JSON; sizes in bytes."""
    found = {
        "training": training._asdict() | {"model": {"type": type(training.model).__name__} | training.model._asdict()},
        "backends": [
            {"name": row.name, "num_ranks": row.num_ranks, **row.forecast._asdict(), "recomputed_activations": row.recomputed,
             "by_rank": [one._asdict() for one in row.by_rank]}
            for row in rows
        ],
        "left_out": left_out,
        "fits": [one._asdict() for one in fits],
    }  # fmt: skip
    return json.dumps(found, indent=2) + "\n"

"""A memory forecast as tables, picture and JSON."""

import json
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from common.cost.memory_forecast import Forecast, Training
from common.terminal import Column, Table, filled
from launch.forecast.memory import described
from launch.forecast.memory.fits import Fit
from launch.report.export import colours, drawing
from launch.report.summary import Answer
from launch.report.tables import BACKEND, RANKS, Section, in_unit

PARTS = {
    "parameters": colours.BLUE,
    "gradients": colours.ORANGE,
    "optimizer_state": colours.GREEN,
    "activations": colours.SKY,
    "buffers": colours.PURPLE,
}
UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6))
BAR_HEIGHT = 22
# The most ranks in a table; JSON has all of them.
MOST_COLUMNS = 16
LINES = (
    "Bytes of tensors on the rank that has most. all: the sum; peak: the most at once, since activations go as gradients come.",
    "Ranks that compute one model together (tensor_parallel, pipeline) have one batch; all others have a batch each.",
    "Programs, the allocator's reserve and the workspace of kernels come on top.",
)


class Row(NamedTuple):
    """The forecast of a backend on the rank that needs most.

    `recomputed` has its activations with --recompute, None where that is no choice. `by_rank` has the forecasts of all ranks of a pipeline.
    """

    backend: str
    num_ranks: int
    forecast: Forecast
    recomputed: float | None
    by_rank: list[Forecast]


def answer(training: Training, rows: list[Row], left_out: Iterable[str], fits: list[Fit], limit: float | None) -> Answer:
    """Returns the answer of a forecast, with what fits into `limit` bytes, and the reasons for what is left out."""
    tables = [*_table(rows), *_stages(rows)]
    sections = [Section("memory", f"Memory per rank: {described.description(training)}", list(LINES), tables)]
    headlines = []
    if limit is not None and fits:
        headlines.append(_headline(fits, limit))
        sections.append(Section("fits", f"What fits into {_text(limit)} per rank", [], filled("What fits", COLUMNS_OF_FITS, fits)))
    notes = [f"left out: {reason}" for reason in left_out]
    return Answer("", headlines, sections, notes, [])


def _unit(size_bytes: float) -> tuple[str, float]:
    """Returns the largest unit that is not larger than a size, with its bytes."""
    return next((unit for unit in UNITS if size_bytes >= unit[1]), UNITS[-1])


def _unit_of_all(rows: Iterable[Row]) -> tuple[str, float]:
    return _unit(max(max(row.forecast.total, row.forecast.peak) for row in rows))


def _text(size_bytes: float) -> str:
    name, size = _unit(size_bytes)
    return f"{size_bytes / size:.4g} {name}"


def _table(rows: list[Row]) -> list[Table]:
    """Returns a table of the parts of each forecast."""
    unit, size = _unit_of_all(rows)
    bytes_of = {part.replace("_", " "): attrgetter(f"forecast.{part}") for part in PARTS if part != "buffers"}
    if any(row.recomputed is not None for row in rows):
        bytes_of["with --recompute"] = attrgetter("recomputed")
    bytes_of |= {"buffers": attrgetter("forecast.buffers"), "all": attrgetter("forecast.total"), "peak": attrgetter("forecast.peak")}
    if any(row.forecast.main_memory for row in rows):
        bytes_of["main memory"] = attrgetter("forecast.main_memory")
    columns = (BACKEND, RANKS, *(Column(name, partial(_in_unit, value_of, size), ".3f") for name, value_of in bytes_of.items()))
    return filled(f"Memory per rank ({unit})", columns, rows)


def _in_unit(bytes_of: Callable[[Row], float | None], unit_bytes: float, row: Row) -> float | None:
    return in_unit(bytes_of(row), unit_bytes)


def _stages(rows: list[Row]) -> list[Table]:
    """Returns a table of the peaks of the ranks of each pipeline."""
    unit, size = _unit_of_all(rows)
    pipelines = [row for row in rows if 1 < len(row.by_rank) <= MOST_COLUMNS]
    num_ranks = max((len(row.by_rank) for row in pipelines), default=0)
    columns = (BACKEND, *(Column(f"rank {rank}", partial(_peak, rank, size), ".3f") for rank in range(num_ranks)))
    return filled(f"Peak on each rank of a pipeline ({unit})", columns, pipelines)


def _peak(rank: int, unit_bytes: float, row: Row) -> float | None:
    """Returns the peak of a rank of a pipeline; None where it has fewer ranks."""
    return row.by_rank[rank].peak / unit_bytes if rank < len(row.by_rank) else None


COLUMNS_OF_FITS: tuple[Column[Fit], ...] = (
    Column(BACKEND.name, attrgetter("name")),
    Column("fits", lambda fit: "yes" if fit.fits else "no"),
    Column("peak (GB)", lambda fit: fit.peak / 1e9, ".3f"),
    Column("largest model: width", attrgetter("width")),
    Column("parameters", lambda fit: fit.num_parameters and f"{fit.num_parameters:.3g}"),
    Column("fewest ranks", attrgetter("fewest_ranks")),
)


def _headline(fits: list[Fit], limit: float) -> str:
    able = [fit.name for fit in fits if fit.fits]
    return f"{len(able)} of {len(fits)} fit into {_text(limit)} per rank: {', '.join(able)}".removesuffix(": ")


def picture(training: Training, rows: list[Row]) -> str:
    """Draws stacked bars of the parts by backend, with a mark at the peak, as SVG."""
    import altair

    unit, size = _unit_of_all(rows)
    parts = [
        {"backend": row.backend, "part": part.replace("_", " "), "place": place, "size": getattr(row.forecast, part) / size}
        for row in rows
        for place, part in enumerate(PARTS)
    ]
    peaks = [{"backend": row.backend, "peak": row.forecast.peak / size} for row in rows]
    backends = altair.Y("backend:N", title=None, sort=[row.backend for row in rows], axis=altair.Axis(labelLimit=300))
    colour_of = altair.Scale(domain=[part.replace("_", " ") for part in PARTS], range=list(PARTS.values()))
    bars = altair.Chart(altair.Data(values=parts)).mark_bar().encode(
        x=altair.X("size:Q", stack="zero", title=f"memory per rank ({unit}); line: peak"),
        y=backends,
        color=altair.Color("part:N", scale=colour_of, legend=altair.Legend(title=None, orient="top")),
        order="place:Q",
    )  # fmt: skip
    at_peak = (
        altair.Chart(altair.Data(values=peaks)).mark_tick(thickness=2, color="#000", size=BAR_HEIGHT - 4).encode(x="peak:Q", y=backends)
    )
    title = altair.Title(described.description(training), anchor="start", fontSize=11, fontWeight="normal")
    drawn = altair.layer(bars, at_peak.encode(x="peak:Q", y=backends)).properties(
        width=drawing.WIDTH, height=BAR_HEIGHT * len(rows), title=title
    )
    return drawing.svg(drawn.to_dict())


def as_json(training: Training, rows: Iterable[Row], left_out: list[str], fits: Iterable[Fit]) -> str:
    """Returns the forecast as JSON; sizes in bytes."""
    content = {
        "training": training._asdict() | {"model": {"type": type(training.model).__name__} | training.model._asdict()},
        "backends": [
            {"name": row.backend, "num_ranks": row.num_ranks, **row.forecast._asdict(), "recomputed_activations": row.recomputed,
             "by_rank": [forecast._asdict() for forecast in row.by_rank]}
            for row in rows
        ],
        "left_out": left_out,
        "fits": [fit._asdict() for fit in fits],
    }  # fmt: skip
    return json.dumps(content, indent=2) + "\n"

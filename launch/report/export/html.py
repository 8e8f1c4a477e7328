"""The answer as one self-contained page: text, tables, charts and the library that draws them."""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from launch.report import comparable
from launch.report.export import charts, colours
from launch.report.tables import BACKEND, OVERSUBSCRIBED, Section, Table

FOLDER = Path(__file__).parent
VEGA_LITE = "6.4"
# Longer texts may wrap.
LONG = 60


class Part(NamedTuple):
    """A section of the page; oversubscribed entries have charts and tables of their own."""

    section: Section
    charts: list[charts.Chart]
    tables: list[Table]
    oversubscribed_charts: list[charts.Chart]
    oversubscribed_tables: list[Table]


def text(answer, reload_seconds=None):
    """The whole page; with `reload_seconds` a browser reloads it that often."""
    backends = list(dict.fromkeys(entry.backend for one in answer.comparisons for entry in one.entries))
    template = jinja2.Environment(loader=jinja2.FileSystemLoader(FOLDER), autoescape=True, undefined=jinja2.StrictUndefined)
    return template.get_template("page.html.jinja").render(
        answer=answer, parts=_parts(answer), facts=_facts(answer), oversubscribed=OVERSUBSCRIBED, json=_json,
        colour=colours.of_backends(backends).get, is_backend=BACKEND.__eq__, numeric_columns=_numeric_columns, long=LONG,
        style=Markup((FOLDER / "page.css").read_text()), script=Markup((FOLDER / "page.js").read_text()),
        library=_library(), reload_seconds=reload_seconds,
    )  # fmt: skip


@cache
def _library():
    """Vega, Vega-Lite and Vega-Embed, as bundled with the package: nothing is fetched."""
    # Slow to import, and used only here.
    import vl_convert

    return Markup(vl_convert.javascript_bundle(vl_version=VEGA_LITE))


def _parts(answer):
    drawn = charts.of(answer) | answer.charts
    return [
        Part(
            section,
            [chart for chart in drawn.get(section.key, []) if not chart.oversubscribed],
            [table for table in section.tables if not table.title.endswith(OVERSUBSCRIBED)],
            [chart for chart in drawn.get(section.key, []) if chart.oversubscribed],
            [table for table in section.tables if table.title.endswith(OVERSUBSCRIBED)],
        )
        for section in answer.sections
    ]


def _facts(answer):
    """[(name, values)] of the environment of the runs."""
    runs = [run for one in answer.comparisons for entry in one.entries for run in entry.runs]
    around = [run["environment"] for run in runs]
    dates = sorted({run["started_at"][:10] for run in runs})
    found = {
        "runs": [str(len(runs))],
        "days": dates if len(dates) < 3 else [f"{dates[0]} to {dates[-1]}"],
        "processor": [one["cpu"] for one in around],
        "cores of a node": [str(one["num_cores"]) for one in around],
        "device": [device for run in runs if (device := comparable.device_of(run))],
        "GPU": [one["gpu"]["model"] for one in around if one.get("gpu") and one["gpu"]["model"]],
        "nodes": [str(run["num_nodes"]) for run in runs if run["num_nodes"]],
        "MPI": [" ".join(one["mpi"].split()) for one in around if one["mpi"]],
        "Python": [one["python"] for one in around],
        "commit": [(one["git_commit"] or "unknown")[:8] for one in around],
    }
    for one in around:
        for name, version in one["packages"].items():
            found.setdefault(name, []).append(version)
    return [(what, ", ".join(sorted(set(values)))) for what, values in found.items() if values]


def _numeric_columns(table):
    return {index for row in table.rows for index, value in enumerate(row) if isinstance(value, (int, float))}


def _json(spec):
    """A specification as JSON that is safe inside a script element."""
    return Markup(json.dumps(spec, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))

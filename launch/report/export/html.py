"""The answer as one page that holds everything it needs: text, tables, charts and the library that draws them."""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from launch.report.export import charts, colours
from launch.report.tables import APART, BACKEND, Section, Table

FOLDER = Path(__file__).parent
VEGA_LITE = "6.4"
# A longer text may break into lines.
LONG = 60


class Part(NamedTuple):
    """A section of the page: what is comparable, and apart from it what is no measure of scaling."""

    section: Section
    charts: list[charts.Chart]
    tables: list[Table]
    apart_charts: list[charts.Chart]
    apart_tables: list[Table]


def text(answer, reload_seconds=None):
    """The whole page; with `reload_seconds`, one that a browser reads again that often, while more records come."""
    backends = list(dict.fromkeys(entry.backend for one in answer.comparisons for entry in one.entries))
    template = jinja2.Environment(loader=jinja2.FileSystemLoader(FOLDER), autoescape=True, undefined=jinja2.StrictUndefined)
    return template.get_template("page.html.jinja").render(
        answer=answer, parts=_parts(answer), facts=_facts(answer), apart=APART, json=_json,
        colour=colours.of_backends(backends).get, is_backend=BACKEND.__eq__, numeric_columns=_numeric_columns, long=LONG,
        style=Markup((FOLDER / "page.css").read_text()), script=Markup((FOLDER / "page.js").read_text()),
        library=_library(), reload_seconds=reload_seconds,
    )  # fmt: skip


@cache
def _library():
    """Vega, Vega-Lite and Vega-Embed, which the package has in it: nothing is fetched."""
    # Slow to import, and wanted for nothing else.
    import vl_convert

    return Markup(vl_convert.javascript_bundle(vl_version=VEGA_LITE))


def _parts(answer):
    drawn = charts.of(answer)
    return [
        Part(
            section,
            [chart for chart in drawn.get(section.key, []) if not chart.apart],
            [table for table in section.tables if not table.title.endswith(APART)],
            [chart for chart in drawn.get(section.key, []) if chart.apart],
            [table for table in section.tables if table.title.endswith(APART)],
        )
        for section in answer.sections
    ]


def _facts(answer):
    """[(what, its values)] of what the runs have in common, or have not."""
    runs = [run for one in answer.comparisons for entry in one.entries for run in entry.runs]
    around = [run["environment"] for run in runs]
    dates = sorted({run["started_at"][:10] for run in runs})
    found = {
        "runs": [str(len(runs))],
        "days": dates if len(dates) < 3 else [f"{dates[0]} to {dates[-1]}"],
        "processor": [one["cpu"] for one in around],
        "cores of a node": [str(one["cores"]) for one in around],
        "nodes": [str(run["nodes"]) for run in runs if run["nodes"]],
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
    """A specification as it may stand between two script tags."""
    return Markup(json.dumps(spec, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))

"""The report as one self-contained page: the answer in words, charts and tables; it runs no script."""

from pathlib import Path

import jinja2
from markupsafe import Markup

from common.record.definition import Record
from common.terminal import text_of
from launch.report import environments
from launch.report.export import charts, drawing
from launch.report.report import RELIABILITY, Report

FOLDER = Path(__file__).parent
# Longer texts may wrap.
LONG = 60


def text(report: Report) -> str:
    """Returns the whole page. Raises NotDrawn where its charts cannot be drawn."""
    template = jinja2.Environment(loader=jinja2.FileSystemLoader(FOLDER), autoescape=True, undefined=jinja2.StrictUndefined)
    charts_of = charts.of(report)
    every_chart = [chart for of_section in charts_of.values() for chart in of_section]
    pictures = iter(drawing.svgs([chart.drawn.to_dict() for chart in every_chart], background=None))
    return template.get_template("page.html.jinja").render(
        report=report, answer=report.answer, sentences=list(map(_unbroken, report.answer.sentences)),
        sections=[section for section in report.sections if section.key != RELIABILITY],
        charts={key: [(chart, Markup(next(pictures))) for chart in of_section] for key, of_section in charts_of.items()},
        facts=_facts(report.runs.compared), colour=charts.colours_of(report.runs.backends).get, long=LONG, text_of=text_of,
        style=Markup((FOLDER / "page.css").read_text("utf-8")),
    )  # fmt: skip


def _unbroken(sentence: str) -> str:
    """Returns a sentence in which no line ends between a number and its unit."""
    return sentence.replace(" %", "\u00a0%").replace(" s.", "\u00a0s.")


def _facts(records: list[Record]) -> dict[str, str]:
    """Returns the values, by name, of the environment of the runs; none without runs."""
    if not records:
        return {}
    values_of = environments.values_of(records)
    dates = sorted({record.started_at[:10] for record in records})
    facts = {
        "runs": [str(len(records))],
        "days": dates if len(dates) < 3 else [f"{dates[0]} to {dates[-1]}"],
        "nodes": [str(record.num_nodes) for record in records if record.num_nodes],
        **values_of,
    }
    return {name: ", ".join(sorted(set(values))) for name, values in facts.items() if values}

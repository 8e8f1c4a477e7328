"""The report as one self-contained page: the answer in words, tables, charts and the library that draws them."""

import json
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from common.record.definition import Record
from common.terminal import text_of
from common.words import listed
from launch.report import environments
from launch.report.answer import Answer, Group, Ranking, Row, leading_groups
from launch.report.export import charts, drawing
from launch.report.export.charts import Chart
from launch.report.report import Report

FOLDER = Path(__file__).parent
# Longer texts may wrap.
LONG = 60
# The most backends of a group that a sentence compares with the fastest.
NUM_NAMED = 3


def text(report: Report, answer: Answer, reload_seconds: int | None = None) -> str:
    """Returns the whole page; with `reload_seconds` a browser reloads it that often."""
    template = jinja2.Environment(loader=jinja2.FileSystemLoader(FOLDER), autoescape=True, undefined=jinja2.StrictUndefined)
    return template.get_template("page.html.jinja").render(
        report=report, answer=answer, sentences=list(map(_unbroken, sentences(answer))), charts=charts.of(report, answer),
        facts=_facts(report.runs), json=_json, colour=charts.colours_of(report.backends).get, long=LONG, text_of=text_of,
        style=Markup((FOLDER / "page.css").read_text("utf-8")), script=Markup((FOLDER / "page.js").read_text("utf-8")),
        library=_library(), reload_seconds=reload_seconds,
    )  # fmt: skip


def sentences(answer: Answer) -> list[str]:
    """Returns a line for each workload, at its most ranks or by machine, and one on how sure the order is, first where it may change."""
    lines = [
        f"{ranking.short_name}, {group.name}: {'. '.join(_on_group(ranking, group))}."
        for ranking in answer.rankings
        for group in leading_groups(ranking)
    ]
    certainty = f"{answer.certainty[0].upper()}{answer.certainty[1:]}."
    return [*lines, certainty] if answer.has_verdicts else [certainty, *lines]


def _on_group(ranking: Ranking, group: Group) -> list[str]:
    """Returns who is first in a group, how much longer the next backends and the last one take, and which have no value."""
    first, fastest = group.first, group.fastest
    if first is None or fastest is None or first.value is None:
        known = [f"{row.backend} ({row.miss})" for row in group.rows if row.epoch_seconds]
        none = "no backend reached the target" if ranking.has_target else "no run completed"
        return [": ".join([none, "; ".join(known)]) if known else none]
    if ranking.has_target:
        texts = [f"{first.backend} reached the target first, in {first.value:.2f} s"]
    else:
        texts = [f"{first.backend} has the highest throughput, {first.value:.0f} samples a second"]
    if first is not fastest:
        texts.append(f"By seconds per epoch {fastest.backend} is fastest")
    if tied := [row.backend for row in group.tied]:
        texts.append(f"No difference is shown from {listed(tied)}")
    slower = [row for row in group.rows if row.ratio and not row.remark and row.backend not in tied]
    named = slower if len(slower) <= NUM_NAMED else [*slower[: NUM_NAMED - 1], slower[-1]]
    if named:
        nearest, *further = named
        others = [f"{row.backend}'s {_percent(row)}" for row in further]
        texts.append(", ".join([f"{nearest.backend}'s epochs take {_percent(nearest)} longer", *others]))
    if missing := [f"{row.backend} ({row.miss})" for row in group.rows if row.value is None]:
        texts.append(f"Without a time: {'; '.join(missing)}")
    return texts


def _percent(row: Row) -> str:
    return f"{100 * (row.ratio.value - 1):.0f} %" if row.ratio else ""


def _unbroken(sentence: str) -> str:
    """Returns a sentence in which no line ends between a number and its unit."""
    return sentence.replace(" %", "\u00a0%").replace(" s.", "\u00a0s.")


@cache
def _library() -> Markup:
    return Markup(drawing.library())


def _facts(records: list[Record]) -> dict[str, str]:
    """Returns the values, by name, of the environment of the runs; none without runs."""
    if not records:
        return {}
    values_of = environments.values_of(records)
    dates = sorted({record.started_at[:10] for record in records})
    facts = {
        "runs": [str(len(records))],
        "days": dates if len(dates) < 3 else [f"{dates[0]} to {dates[-1]}"],
        "device": [device for record in records if (device := environments.device_of(record))],
        "nodes": [str(record.num_nodes) for record in records if record.num_nodes],
        **values_of,
    }
    return {name: ", ".join(sorted(set(values))) for name, values in facts.items() if values}


def _json(chart: Chart) -> Markup:
    """Returns the specification of a chart, as wide as its place, as JSON that is safe inside a script element."""
    spec = chart.drawn.to_dict() | {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    return Markup(json.dumps(spec, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))

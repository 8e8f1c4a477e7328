"""The pictures of the answer at a glance: bars of a workload by size, or a forest plot of ratios for several matrices or machines."""

from collections.abc import Iterable, Mapping, Sequence

from launch.report import comparable, entries
from launch.report.export import colours
from launch.report.export.charts import Chart, ChartRow
from launch.report.export.vega_lite import DOT, NEUTRAL, Spec, layer, layered, named, on_page, quantity, tooltip
from launch.report.glance.answer import Glance, Group, Panel, Standing
from launch.report.summary import Answer

KIND, FOREST = "Time to solution", "Ratio to fastest"
ROW_HEIGHT = 21
# How much wider than its longest bar a picture is, for the labels.
LABELS = 1.6
# The label of a row stands after the mark; the place before it makes rows of several groups different.
MARK = "|"
AXIS = {
    "domain": False,
    "ticks": False,
    "labelExpr": f"split(datum.label, '{MARK}')[1]",
    "labelFontWeight": {"condition": {"test": f"split(datum.label, '{MARK}').length > 2", "value": "bold"}, "value": "normal"},
    "labelLimit": 240,
    "title": None,
    "grid": False,
}


def of(glance: Glance, report: Answer) -> list[Chart]:
    """Returns a picture for each workload."""
    colour_of = colours.of_backends(glance.backends)
    is_forest = len(comparable.machines_of(report.runs)) > 1 or len(entries.matrices(report.runs)) > 1
    return [(_forest if is_forest else _bars)(panel, colour_of) for panel in glance.panels]


def _bars(panel: Panel, colour_of: Mapping[str, str]) -> Chart:
    rows = [row | _bar(standing) for row, standing in _rows(panel.groups)]
    name = "time to solution (s)" if panel.has_target else "samples a second"
    longest = max(row["end"] for row in rows)
    x, y = quantity("value", name, scale={"domain": [0, LABELS * longest or 1]}), _places(rows)
    colour = named("backend", colour_of) | {"legend": None}
    shown = tooltip("backend", "label")
    bars = [row for row in rows if row.get("value")]
    whiskers = [row for row in bars if row["low"] is not None]
    layers = layered(
        layer("bar", {"x": x, "y": y, "color": colour, "tooltip": shown}, bars, height={"band": 0.7}),
        layer("rule", {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y}, whiskers, strokeWidth=2, color=NEUTRAL),
        layer("text", {"x": x | {"field": "end"}, "y": y, "text": {"field": "label"}}, align="left", dx=6, fontSize=11),
    )
    caption = f"{'Shorter' if panel.has_target else 'Longer'} is better."
    caption += " Lines are 95 % intervals of the ratio of epochs to the fastest's." if whiskers else ""
    return _chart(KIND, panel, caption, rows, layers)


def _bar(standing: Standing | None) -> ChartRow:
    """Returns the value of a bar, the ends of its whisker and its label; of a heading nothing."""
    if standing is None:
        return {"end": 0, "label": ""}
    if standing.value is None:
        return {"value": 0, "end": 0, "label": standing.miss, "low": None, "high": None}
    value, ratio = standing.value, standing.ratio
    low = high = None
    if ratio and ratio.low is not None and ratio.high is not None:
        low, high = value * ratio.low / ratio.value, value * ratio.high / ratio.value
    label = f"{value:.2f} s" if value < 100 else f"{value:.0f}"
    # No percentage: those of the answer are of epochs, and would contradict the length of a bar.
    label += f", {standing.remark}" if standing.remark else ""
    return {"value": value, "end": max(value, high or 0), "low": low, "high": high, "label": label}


def _forest(panel: Panel, colour_of: Mapping[str, str]) -> Chart:
    rows = [row | _point(standing) for row, standing in _rows(panel.groups)]
    points = [row for row in rows if row.get("ratio")]
    ends = [row[end] for row in points for end in ("low", "end") if row[end] is not None]
    low, high = min([1.0, *ends]), max([1.0, *ends])
    domain = [low, low + LABELS * max(high - low, 0.1)]
    x, y = quantity("ratio", "seconds per epoch over the fastest's", scale={"domain": domain}), _places(rows)
    colour = named("backend", colour_of) | {"legend": None}
    layers = layered(
        layer("rule", {"x": x}, [{"ratio": 1}], strokeDash=[4, 4], color=NEUTRAL),
        layer("rule", {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y, "color": colour},
              [row for row in points if row["low"] is not None], strokeWidth=2),
        layer("point", {"x": x, "y": y, "color": colour, "tooltip": tooltip("backend", "label")}, points, size=70, **DOT),
        layer("text", {"x": x | {"field": "end"}, "y": y, "text": {"field": "label"}}, align="left", dx=6, fontSize=11),
    )  # fmt: skip
    caption = "Further left is better. Each ratio is to the fastest of its group. Lines are simultaneous 95 % intervals."
    return _chart(FOREST, panel, caption, rows, layers)


def _point(standing: Standing | None) -> ChartRow:
    """Returns the ratio of a point, its interval and its label; of a heading nothing."""
    if standing is None:
        return {"end": 1, "label": ""}
    if standing.value is None:
        return {"end": 1, "label": standing.miss}
    ratio = standing.ratio
    if ratio is None:
        return {"ratio": 1.0, "low": None, "high": None, "end": 1.0, "label": "fastest"}
    label = standing.remark or f"{ratio.value:.2f}"
    return {"ratio": ratio.value, "low": ratio.low, "high": ratio.high, "end": ratio.high or ratio.value, "label": label}


def _rows(groups: Sequence[Group]) -> Iterable[tuple[ChartRow, Standing | None]]:
    """Yields the heading of each group, which has no standing, and then a row for each of its standings."""
    for number, group in enumerate(groups):
        yield {"place": f"{number}{MARK}{group.name}{MARK}"}, None
        for standing in group.standings:
            yield {"place": f"{number}{MARK}{standing.backend}", "backend": standing.backend}, standing


def _places(rows: Sequence[ChartRow]) -> Spec:
    places = [row["place"] for row in rows]
    return {"field": "place", "type": "nominal", "scale": {"domain": places}, "axis": AXIS}


def _chart(kind: str, panel: Panel, caption: str, rows: Sequence[ChartRow], layers: Spec) -> Chart:
    target = f"{panel.name}, target {panel.target:g}" if panel.has_target else panel.name
    return Chart(kind, target, caption, on_page(ROW_HEIGHT * len(rows), data={"values": rows}, **layers), None, False)

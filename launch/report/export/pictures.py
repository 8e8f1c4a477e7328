"""All charts of an answer, and those of several machines, which have a report of their own."""

from collections.abc import Iterable, Sequence

from launch.report.export import charts, colours
from launch.report.export.charts import Chart, ChartRow
from launch.report.export.vega_lite import DOT, NEUTRAL, Spec, layer, layered, named, on_page, quantity, tooltip
from launch.report.questions import machines
from launch.report.summary import Answer
from launch.report.tables import OVERSUBSCRIBED
from launch.report.words import ranks_of

MACHINES = "Ratio to fastest by machine"
ROW_HEIGHT = 14


def of(answer: Answer) -> dict[str, list[Chart]]:
    """Returns the charts of an answer by the key of their section."""
    if any(section.key == "machines" for section in answer.sections):
        return {"machines": _by_machine(answer)}
    return charts.of(answer)


def _by_machine(answer: Answer) -> list[Chart]:
    """Returns a forest plot for each workload: the ratios at each size, machine by machine, with their intervals."""
    rows_of: dict[str, list[ChartRow]] = {}
    for (name, size), placed_on in machines.standings_of(answer.comparisons).items():
        rows_of.setdefault(name, []).extend(
            {
                "at": f"{ranks_of(size)}, {machine}", "backend": place.entry.backend, "verdict": place.verdict,
                "ratio": place.against.value if place.against else 1.0,
                "low": place.against and place.against.low, "high": place.against and place.against.high,
            }
            for machine, placed in placed_on.items() for place in placed
        )  # fmt: skip
    return [_forest(name, rows, answer.backends) for name, rows in rows_of.items()]


def _forest(name: str, rows: Sequence[ChartRow], backends: Iterable[str]) -> Chart:
    x = quantity("ratio", "seconds per epoch over those of the fastest on the machine", scale={"zero": False})
    places, looks = list(dict.fromkeys(row["at"] for row in rows)), _looks(rows, backends)
    y = {"field": "at", "type": "nominal", "title": None, "sort": places, "axis": {"labelLimit": 300}, "scale": {"paddingInner": 0.3}}
    place = {"y": y, "yOffset": {"field": "backend", "sort": looks["color"]["scale"]["domain"]}}
    shown = tooltip("at", "backend", "verdict", ratio=".3f", low=".3f", high=".3f")
    layers = layered(
        layer("rule", {"x": x}, [{"ratio": 1}], strokeDash=[4, 4], color=NEUTRAL),
        _bars("x", x, rows, place | {"color": looks["color"]}),
        layer("point", {"x": x, **place, **looks, "tooltip": shown}, size=55, **DOT),
    )
    caption = "The dashed line is the fastest backend of each machine. Bars are 95 % intervals, simultaneous on each machine."
    return _chart(MACHINES, name, caption, rows, ROW_HEIGHT * len({row["backend"] for row in rows}) * len(places), layers)


def _looks(rows: Iterable[ChartRow], backends: Iterable[str]) -> dict[str, Spec]:
    """Returns the channels of colour and shape of the backends of rows, as they look in the whole answer."""
    used = {row["backend"] for row in rows}
    looks = {"color": colours.of_backends(backends), "shape": colours.shapes_of(backends)}
    return {channel: named("backend", {name: look for name, look in look_of.items() if name in used}) for channel, look_of in looks.items()}


def _bars(axis: str, quantities: Spec, rows: Iterable[ChartRow], channels: Spec) -> Spec:
    """Returns the layer of the intervals of the rows that have one."""
    ends = {axis: quantities | {"field": "low"}, f"{axis}2": {"field": "high"}}
    return layer("rule", channels | ends, [row for row in rows if row["low"] is not None], strokeWidth=1.5)


def _chart(kind: str, subject: str, caption: str, rows: Sequence[ChartRow], height: float, layers: Spec) -> Chart:
    """Returns the chart of rows whose numbers the section's tables have."""
    return Chart(kind, subject, caption, on_page(height, data={"values": rows}, **layers), None, subject.endswith(OVERSUBSCRIBED))

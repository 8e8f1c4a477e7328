"""All charts of an answer, and those of several machines, which have a report of their own. Pure."""

from launch.report.export import charts, colours
from launch.report.export.charts import Chart
from launch.report.export.vega_lite import DOT, NEUTRAL, layer, layered, named, on_page, quantity, tooltip
from launch.report.questions import machines
from launch.report.tables import OVERSUBSCRIBED
from launch.report.words import ranks_of

MACHINES = "Ratio to fastest by machine"
ROW_HEIGHT = 14


def of(answer):
    """{key of a section: its charts} of an answer."""
    if any(section.key == "machines" for section in answer.sections):
        return {"machines": _by_machine(answer)}
    return charts.of(answer)


def _by_machine(answer):
    """A forest plot for each workload: the ratios at each size, machine by machine, with their intervals."""
    rows_of = {}
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


def _forest(name, rows, backends):
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


def _looks(rows, backends):
    """The channels of colour and shape of the backends of rows, as they look in the whole answer."""
    used = {row["backend"] for row in rows}
    looks = {"color": colours.of_backends(backends), "shape": colours.shapes_of(backends)}
    return {channel: named("backend", {name: look for name, look in of.items() if name in used}) for channel, of in looks.items()}


def _bars(axis, quantities, rows, channels):
    """The layer of the intervals of the rows that have one."""
    ends = {axis: quantities | {"field": "low"}, f"{axis}2": {"field": "high"}}
    return layer("rule", channels | ends, [row for row in rows if row["low"] is not None], strokeWidth=1.5)


def _chart(kind, subject, caption, rows, height, layers):
    """The chart of rows whose numbers the section's tables have."""
    return Chart(kind, subject, caption, on_page(height, data={"values": rows}, **layers), None, subject.endswith(OVERSUBSCRIBED))

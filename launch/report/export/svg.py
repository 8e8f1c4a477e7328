"""The time to solution by backend and size, as an SVG picture for documents."""

from common.errors import UserError
from launch.report.export import charts
from launch.report.export.html import VEGA_LITE

WIDTH = 620
CONFIG = {"background": "#fff", "font": "sans-serif", "view": {"stroke": None}, "legend": {"columns": 6, "labelLimit": 220}}


def text(answer):
    """One chart per comparison; oversubscribed entries are left out. Raises UserError where there is no chart."""
    times = [chart for chart in charts.of(answer)["first"] if chart.kind == "Time to solution" and not chart.oversubscribed]
    if not times:
        raise UserError("--svg draws the time to solution, and no run has a target without oversubscription; leave --svg out")
    return stacked({chart.subject: chart.spec for chart in times})


def stacked(specs):
    """Vega-Lite specifications by title, one below the other, as SVG."""
    drawn = [
        {name: part for name, part in spec.items() if name != "autosize"} | {"width": WIDTH, "title": title}
        for title, spec in specs.items()
    ]
    return picture({"vconcat": drawn})


def picture(spec):
    """A Vega-Lite specification as SVG."""
    # Slow to import, and used only here.
    import vl_convert

    return vl_convert.vegalite_to_svg({"config": CONFIG} | spec, vl_version=VEGA_LITE)

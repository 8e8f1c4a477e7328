"""The time to solution by backend and size, as an SVG picture for documents."""

from common.errors import UserError
from launch.report.export import charts
from launch.report.export.html import VEGA_LITE

WIDTH = 620
CONFIG = {"background": "#fff", "font": "sans-serif", "view": {"stroke": None}, "legend": {"columns": 6, "labelLimit": 220}}


def text(answer):
    """One chart per comparison; oversubscribed entries are left out. Raises UserError where there is no chart."""
    # Slow to import, and used only here.
    import vl_convert

    times = [chart for chart in charts.of(answer)["first"] if chart.kind == "Time to solution" and not chart.oversubscribed]
    if not times:
        raise UserError("--svg draws the time to solution, and no run has a target without oversubscription; leave --svg out")
    drawn = [
        {name: part for name, part in chart.spec.items() if name != "autosize"} | {"width": WIDTH, "title": chart.subject}
        for chart in times
    ]
    return vl_convert.vegalite_to_svg({"config": CONFIG, "vconcat": drawn}, vl_version=VEGA_LITE)

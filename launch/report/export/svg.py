"""The main chart of the page as a picture for documents that cannot hold a page: the time to solution, by backend and size."""

from common.errors import UserError
from launch.report.export import charts
from launch.report.export.html import VEGA_LITE

WIDTH = 620
CONFIG = {"background": "#fff", "font": "sans-serif", "view": {"stroke": None}, "legend": {"columns": 6, "labelLimit": 220}}


def text(answer):
    """One chart below the other for each comparison; what is set apart on the page is left out. Raises UserError where there is none."""
    # Slow to import, and wanted for nothing else.
    import vl_convert

    times = [chart for chart in charts.of(answer)["first"] if chart.kind == "Time to solution" and not chart.apart]
    if not times:
        raise UserError("--svg draws the time to solution where each rank has a core, and no such run has a target; leave --svg out")
    drawn = [
        {name: part for name, part in chart.spec.items() if name != "autosize"} | {"width": WIDTH, "title": chart.about} for chart in times
    ]
    return vl_convert.vegalite_to_svg({"config": CONFIG, "vconcat": drawn}, vl_version=VEGA_LITE)

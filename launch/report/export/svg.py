"""The time to solution by backend and size, as an SVG picture for documents."""

from common.errors import UserError
from launch.report.export import charts, vega_lite


def text(answer):
    """One chart per comparison; oversubscribed entries are left out. Raises UserError where there is no chart."""
    times = [chart for chart in charts.of(answer)["first"] if chart.kind == "Time to solution" and not chart.oversubscribed]
    if not times:
        raise UserError("--svg draws the time to solution, and no run has a target without oversubscription; leave --svg out")
    return vega_lite.svg(vega_lite.below_each_other({chart.subject: chart.spec for chart in times}))

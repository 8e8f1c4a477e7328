"""The main charts of an answer as an SVG picture for documents: times to solution, ratios by machine, or seconds per epoch by date."""

from common.errors import UserError
from launch.report.export import pictures, vega_lite

KINDS = ("Time to solution", pictures.MACHINES)


def text(answer):
    """One chart per comparison; oversubscribed entries are left out. Raises UserError where there is no chart."""
    drawn = [chart for of_section in pictures.of(answer).values() for chart in of_section if chart.kind in KINDS]
    specs = {chart.subject: chart.spec for chart in drawn if not chart.oversubscribed}
    if not specs:
        raise UserError("--svg draws times to solution, ratios or changes, and without oversubscription there are none; leave --svg out")
    return vega_lite.svg(vega_lite.below_each_other(specs))

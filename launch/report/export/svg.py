"""The main charts of an answer as an SVG picture for documents: times to solution, or ratios by machine."""

from common.errors import UserError
from launch.report.export import pictures, vega_lite
from launch.report.summary import Answer

KINDS = ("Time to solution", pictures.MACHINES)


def text(answer: Answer) -> str:
    """Returns one chart per comparison; oversubscribed entries are left out. Raises UserError where there is no chart."""
    drawn = [chart for charts in pictures.of(answer).values() for chart in charts if chart.kind in KINDS]
    specs = {chart.subject: chart.spec for chart in drawn if not chart.oversubscribed}
    if not specs:
        raise UserError("--svg draws times to solution or ratios by machine, and without oversubscription there are none; leave --svg out")
    return vega_lite.svg(vega_lite.below_each_other(specs))

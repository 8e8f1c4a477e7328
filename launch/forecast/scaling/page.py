"""Forecasts as a section of a report, with its charts. Pure."""

from launch.forecast.scaling import answer, forecasts, picture
from launch.report.export.charts import Chart

KIND = "Throughput at more ranks"
CAPTION = (
    "samples/s over those of the smallest size. Dotted: forecasts, with the band of their held-out error. Crosses: the knees, where "
    "efficiency falls below 50 % (grey, dotted). Grey, dashed: ideal."
)


def with_forecasts(report, wish):
    """The Answer of a report with a section of forecasts after that on scaling. Raises UserError where nothing can be forecast."""
    subjects, left_out = forecasts.of(report.comparisons, wish)
    section = answer.section(subjects, left_out, wish)
    place = 1 + next(number for number, reported in enumerate(report.sections) if reported.key == "scaling")
    drawn = [Chart(KIND, about, CAPTION, spec, None, False) for about, spec in picture.specs(subjects).items()]
    sections = [*report.sections[:place], section, *report.sections[place:]]
    return report._replace(sections=sections, charts={section.key: drawn})

"""The scaling charts of forecasts: measured sizes, the dotted lines on from there, and their bands. Pure.

Crosses mark the knees, where the line falls below half of the ideal (grey, dotted).
"""

from launch.forecast.scaling.forecasts import KNEE
from launch.report.export import colours, vega_lite
from launch.report.export.vega_lite import DOT, NEUTRAL, layer, layered, logarithmic, named, on_page

HEIGHT = 300
DOTTED, DASHED = [2, 4], [6, 4]
SHAPES = {"forecast": "circle", "extrapolated": "diamond"}


def text(subjects):
    """One SVG picture of all charts."""
    charts = {f"{about}: samples/s over those of the smallest size": chart for about, chart in specs(subjects).items()}
    return vega_lite.svg(vega_lite.below_each_other(charts))


def specs(subjects):
    """{workload and kind of scaling: the Vega-Lite specification of its chart}"""
    return {
        about: spec([subject for subject in subjects if subject.about == about])
        for about in dict.fromkeys(subject.about for subject in subjects)
    }


def rows(subject):
    """The points of one backend: throughput over that of the smallest size, with its band."""
    first = subject.sizes[0].samples_per_second
    points = []
    for forecast in subject.forecasts:
        ratio = forecast.samples_per_second / first
        low, high = (forecast.step_seconds / seconds if seconds else 1.0 for seconds in (forecast.high_seconds, forecast.low_seconds))
        points.append(
            {
                "backend": subject.backend, "ranks": forecast.num_ranks, "ratio": ratio, "low": ratio * low, "high": ratio * high,
                "kind": forecast.kind,
            }
        )  # fmt: skip
    return points


def spec(subjects):
    """The Vega-Lite specification of the Subjects of one workload and kind of scaling."""
    points = [row for subject in subjects for row in rows(subject)]
    knees = [row for subject in subjects if (row := _knee(subject))]
    sizes = sorted({row["ranks"] for row in points})
    ideal = [{"ranks": size, "ratio": size / sizes[0], "half": KNEE * size / sizes[0]} for size in (sizes[0], sizes[-1])]
    measured = [row for row in points if row["kind"] == "measured"]
    beyond = [row for row in points if row["kind"] != "measured"]
    # The last measured point begins the dotted line.
    last = [max((row for row in measured if row["backend"] == subject.backend), key=lambda row: row["ranks"]) for subject in subjects]
    onward = [*last, *beyond]
    x, y = (logarithmic(field, field, format=form, grid=False) for field, form in (("ranks", "~s"), ("ratio", "~g")))
    colour = named("backend", colours.of_backends([subject.backend for subject in subjects]), symbolOpacity=1)
    curve = {"x": x, "y": y, "color": colour}
    grey = {"color": NEUTRAL, "strokeWidth": 1}
    return on_page(
        HEIGHT,
        **layered(
            layer("area", curve | {"y": y | {"field": "low"}, "y2": {"field": "high"}}, onward, opacity=0.12),
            layer("line", {"x": x, "y": y}, ideal, strokeDash=DASHED, **grey),
            layer("line", {"x": x, "y": y | {"field": "half"}}, ideal, strokeDash=DOTTED, **grey),
            layer("line", curve, measured, strokeWidth=2),
            layer("line", curve, onward, strokeDash=DOTTED, strokeWidth=2),
            layer("point", curve, measured, size=60, **DOT),
            layer("point", curve | {"shape": named("kind", SHAPES)}, beyond, size=40, opacity=1),
            layer("point", curve, knees, shape="cross", size=110, **DOT),
        ),
    )


def _knee(subject):
    """The point of a backend's knee; None where it is not in the picture."""
    knee = subject.knee
    if knee is None or knee > max(forecast.num_ranks for forecast in subject.forecasts):
        return None
    return {"backend": subject.backend, "ranks": knee, "ratio": KNEE * knee / subject.sizes[0].num_ranks}

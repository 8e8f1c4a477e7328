"""The scaling charts of forecasts: measured sizes, the dotted lines on from there, and their bands. Pure.

Crosses mark the knees, where the line falls below half of the ideal (grey, dotted); dash-dotted lines are Extra-P's.
"""

from launch.forecast.rows import KNEE
from launch.report.export import colours, svg

HEIGHT = 300
NEUTRAL = "#808080"
DOTTED, DASHED, DASH_DOTTED = [2, 4], [6, 4], [8, 3, 2, 3]


def text(subjects):
    """One SVG picture of all charts."""
    return svg.stacked({f"{about}: samples/s over those of the smallest size": one for about, one in specs(subjects).items()})


def specs(subjects):
    """{workload and kind of scaling: the Vega-Lite specification of its chart}"""
    return {about: spec([one for one in subjects if one.about == about]) for about in dict.fromkeys(one.about for one in subjects)}


def rows(subject):
    """The points of one backend: throughput over that of the smallest size, with its band, and Extra-P's where there is one."""
    first = subject.measured[0].samples_per_second
    found = []
    for one in subject.forecasts:
        ratio = one.samples_per_second / first
        over = [one.step_seconds / seconds if seconds else 1.0 for seconds in (one.high_seconds, one.low_seconds)]
        opinion = one.second_opinion_seconds
        found.append(
            {
                "backend": subject.backend, "ranks": one.num_ranks, "ratio": ratio, "low": ratio * over[0], "high": ratio * over[1],
                "kind": one.kind, "opinion": ratio * one.step_seconds / opinion if opinion and opinion > 0 else None,
            }
        )  # fmt: skip
    return found


def spec(own):
    """The Vega-Lite specification of the Subjects of one workload and kind of scaling."""
    points = [row for one in own for row in rows(one)]
    knees = [row for one in own if (row := _knee(one))]
    sizes = sorted({row["ranks"] for row in points})
    names = [one.backend for one in own]
    palette = colours.of_backends(names)
    colour = {
        "field": "backend", "type": "nominal", "legend": {"title": None, "orient": "top", "symbolOpacity": 1},
        "scale": {"domain": names, "range": [palette[name] for name in names]},
    }  # fmt: skip
    x, y = _axis("ranks", "~s"), _axis("ratio", "~g")
    curve = {"x": x, "y": y, "color": colour}
    ideal = [{"ranks": size, "ratio": size / sizes[0], "half": KNEE * size / sizes[0]} for size in (sizes[0], sizes[-1])]
    measured = [row for row in points if row["kind"] == "measured"]
    beyond = [row for row in points if row["kind"] != "measured"]
    # The last measured point begins the dotted line.
    lasts = [max((row for row in rows(one) if row["kind"] == "measured"), key=lambda row: row["ranks"]) for one in own]
    onward = [*lasts, *beyond]
    layers = [
        {"data": {"values": onward}, "mark": {"type": "area", "opacity": 0.12},
         "encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, "color": colour}},
        *(
            {"data": {"values": ideal}, "mark": {"type": "line", "strokeDash": dash, "color": NEUTRAL, "strokeWidth": 1},
             "encoding": {"x": x, "y": y | {"field": field}}}
            for field, dash in (("ratio", DASHED), ("half", DOTTED))
        ),
        {"data": {"values": measured}, "mark": {"type": "line", "strokeWidth": 2}, "encoding": curve},
        {"data": {"values": onward}, "mark": {"type": "line", "strokeDash": DOTTED, "strokeWidth": 2}, "encoding": curve},
        {"data": {"values": measured}, "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1}, "encoding": curve},
        {"data": {"values": beyond}, "mark": {"type": "point", "size": 40, "opacity": 1},
         "encoding": curve | {"shape": {"field": "kind", "type": "nominal", "scale": {"domain": ["forecast", "extrapolated"],
                              "range": ["circle", "diamond"]}, "legend": {"title": None, "orient": "top"}}}},
    ]  # fmt: skip
    opinions = [row for row in points if row["opinion"]]
    if opinions:
        line = {"type": "line", "strokeDash": DASH_DOTTED, "strokeWidth": 1}
        layers.append({"data": {"values": opinions}, "mark": line, "encoding": curve | {"y": y | {"field": "opinion"}}})
    if knees:
        mark = {"type": "point", "shape": "cross", "filled": True, "size": 110, "opacity": 1}
        layers.append({"data": {"values": knees}, "mark": mark, "encoding": curve})
    return {
        "width": "container",
        "height": HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
        # Vega-Lite cannot infer a scale for a layer without rows.
        "layer": [one for one in layers if one["data"]["values"]],
    }


def _axis(field, number_format):
    """The channel of a field on a logarithmic axis."""
    scale = {"type": "log", "nice": False}
    return {"field": field, "type": "quantitative", "title": field, "scale": scale, "axis": {"format": number_format, "grid": False}}


def _knee(subject):
    """The point of a backend's knee; None where it is not in the picture."""
    knee = subject.knee
    if knee is None or knee > max(one.num_ranks for one in subject.forecasts):
        return None
    return {"backend": subject.backend, "ranks": knee, "ratio": KNEE * knee / subject.measured[0].num_ranks}

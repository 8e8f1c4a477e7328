"""How long the steps of runs wait for samples, as a picture: a bar for each run, of its waiting and of the rest of its step."""

from launch.report.export import colours, svg

PARTS = {"waits for samples": colours.VERMILION, "computes and exchanges": colours.STAGES["train"]}
BAR_HEIGHT = 18
# Widest letter of the labels in pixels: a viewer's font may be wider than the one that the picture is laid out with.
WIDEST_LETTER = 6.5


def picture(found):
    """The Waiteds (launch/lesson/data.py) in their order, as SVG."""
    names = [one.name for one in found]
    values = [
        {"run": one.name, "part": part, "place": place, "ms": 1000 * seconds}
        for one in found
        for place, (part, seconds) in enumerate(zip(PARTS, (one.wait_seconds, one.step_seconds - one.wait_seconds), strict=True))
    ]
    extent = WIDEST_LETTER * max(map(len, names))
    encoding = {
        "x": {"field": "ms", "type": "quantitative", "stack": "zero", "title": "step (ms)"},
        "y": {"field": "run", "type": "nominal", "sort": names, "title": None, "axis": {"labelLimit": 2 * extent, "minExtent": extent}},
        "color": {
            "field": "part",
            "type": "nominal",
            "scale": {"domain": list(PARTS), "range": list(PARTS.values())},
            "legend": {"title": None, "orient": "top"},
        },
        "order": {"field": "place"},
    }
    size = {"width": svg.WIDTH, "height": BAR_HEIGHT * len(names)}
    return svg.picture(size | {"data": {"values": values}, "mark": {"type": "bar"}, "encoding": encoding})

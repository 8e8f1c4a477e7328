"""A picture of a collective: time and bus bandwidth by size on logarithmic axes, for each library, with the fitted lines. Pure."""

from common import hockney
from launch.collectives import table
from launch.report.export import colours

GREY = colours.GREY
COLOURS = {"mpi": colours.BLUE, "gloo": colours.ORANGE, "nccl": colours.VERMILION, "horovod_torch": colours.GREEN}
COPY = "memory copy"
PANEL = 300
NUM_LABELS = 8
SIZE_TEXT = " : ".join(f"datum.value >= {size} ? format(datum.value / {size}, '.3~g') + ' {unit}'" for size, unit in table.UNITS) + " : ''"
SUBTITLE = "points: medians and the range of the repeats; lines: alpha + beta n"
PANELS = (("us", "time (us)"), ("gb_per_second", "bus bandwidth (GB/s)"))


def spec(collective, measurements, fits, copies):
    """The Vega-Lite specification; `copies`: [(size in bytes, median seconds)] of a copy in main memory."""
    shown = [one for one in measurements if one.collective == collective]
    used = [name for name in COLOURS if any(one.library == name for one in shown)]
    points = [_point(one) for one in shown]
    lines = [point for fit in fits if fit.collective == collective for point in _line(fit, shown)]
    copied = [{"library": COPY, "size": size, "us": seconds * 1e6, "gb_per_second": size / seconds / 1e9} for size, seconds in copies]
    return {
        "title": {"text": f"{collective}, {shown[0].num_ranks} ranks", "subtitle": SUBTITLE},
        "hconcat": [_panel(key, title, points, lines, copied, used) for key, title in PANELS],
    }


def _point(one):
    least, most = min(one.seconds), max(one.seconds)
    return {
        "library": one.library, "size": one.size_bytes, "where": "in place" if one.in_place else "out of place",
        "us": one.median_seconds * 1e6, "us_low": least * 1e6, "us_high": most * 1e6,
        "gb_per_second": one.bus_bytes_per_second / 1e9,
        "gb_per_second_low": one.bus_bytes / most / 1e9, "gb_per_second_high": one.bus_bytes / least / 1e9,
    }  # fmt: skip


def _line(fit, shown):
    """Points of the fitted lines, at the sizes that were measured."""
    own = [one for one in shown if (one.library, one.in_place) == (fit.library, fit.in_place)]
    for one in own if fit.regimes else []:
        regime = hockney.regime_of(fit.regimes, one.size_bytes)
        seconds = hockney.seconds_of(fit.regimes, one.size_bytes)
        yield {
            "library": fit.library, "regime": f"{fit.library} {regime.from_bytes}", "size": one.size_bytes,
            "us": seconds * 1e6, "gb_per_second": one.bus_bytes / seconds / 1e9,
        }  # fmt: skip


def _panel(key, title, points, lines, copied, used):
    scale = {"type": "log", "nice": False}
    sizes = sorted({point["size"] for point in points})
    labels = {"values": sizes[:: -(-len(sizes) // NUM_LABELS)], "labelExpr": SIZE_TEXT, "grid": False}
    x = {"field": "size", "type": "quantitative", "title": "size", "scale": scale, "axis": labels}
    y = {"field": key, "type": "quantitative", "title": title, "scale": scale, "axis": {"format": "~g", "gridOpacity": 0.5}}
    names = {"domain": [*used, COPY], "range": [*(COLOURS[name] for name in used), GREY]}
    colour = {"field": "library", "type": "nominal", "scale": names, "legend": {"title": None, "orient": "top"}}
    place = {"field": "where", "type": "nominal", "scale": {"domain": ["in place", "out of place"], "range": ["circle", "square"]}}
    dotted = {"type": "line", "strokeDash": [5, 4], "strokeWidth": 1.5}
    return {
        "width": PANEL,
        "height": PANEL,
        "layer": [
            {"data": {"values": copied}, "mark": dotted, "encoding": {"x": x, "y": y, "color": colour}},
            {
                "data": {"values": lines},
                "mark": {"type": "line", "strokeWidth": 1.2},
                "encoding": {"x": x, "y": y, "color": colour, "detail": {"field": "regime"}},
            },
            {
                "data": {"values": points},
                "mark": {"type": "rule", "strokeWidth": 1.2},
                "encoding": {"x": x, "y": y | {"field": f"{key}_low"}, "y2": {"field": f"{key}_high"}, "color": colour},
            },
            {
                "data": {"values": points},
                "mark": {"type": "point", "filled": True, "size": 28, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": colour, "shape": place | {"legend": {"title": None, "orient": "top"}}},
            },
        ],
    }  # fmt: skip

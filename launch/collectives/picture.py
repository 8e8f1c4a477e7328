"""A picture of a collective: time and bus bandwidth by size on logarithmic axes, for each library, with the fitted lines. Pure."""

from common.units import BINARY
from launch.forecast.network import hockney
from launch.report.export import colours
from launch.report.export.vega_lite import DOT, layer, layered, logarithmic, named

COLOURS = {"mpi": colours.BLUE, "gloo": colours.ORANGE, "nccl": colours.VERMILION, "horovod_torch": colours.GREEN}
COPY = "memory copy"
SHAPES = {"in place": "circle", "out of place": "square"}
PANEL = 300
NUM_LABELS = 8
SIZE_TEXT = (
    " : ".join(f"datum.value >= {size} ? format(datum.value / {size}, '.3~g') + ' {unit}'" for unit, size in BINARY.items()) + " : ''"
)
SUBTITLE = "points: medians and the range of the repeats; lines: alpha + beta n"
PANELS = (("us", "time (us)"), ("gb_per_second", "bus bandwidth (GB/s)"))


def spec(collective, measurements, fits, copies):
    """The Vega-Lite specification; `copies`: [(size in bytes, median seconds)] of a copy in main memory."""
    shown = [measurement for measurement in measurements if measurement.collective == collective]
    libraries = {measurement.library for measurement in shown}
    colour_of = {name: colour for name, colour in COLOURS.items() if name in libraries} | {COPY: colours.GREY}
    points = [_point(measurement) for measurement in shown]
    lines = [point for fit in fits if fit.collective == collective for point in _line(fit, shown)]
    copied = [{"library": COPY, "size": size, "us": seconds * 1e6, "gb_per_second": size / seconds / 1e9} for size, seconds in copies]
    return {
        "title": {"text": f"{collective}, {shown[0].num_ranks} ranks", "subtitle": SUBTITLE},
        "hconcat": [_panel(field, title, points, lines, copied, colour_of) for field, title in PANELS],
    }


def _point(measurement):
    least, most = min(measurement.seconds), max(measurement.seconds)
    return {
        "library": measurement.library, "size": measurement.size_bytes, "where": "in place" if measurement.in_place else "out of place",
        "us": measurement.median_seconds * 1e6, "us_low": least * 1e6, "us_high": most * 1e6,
        "gb_per_second": measurement.bus_bytes_per_second / 1e9,
        "gb_per_second_low": measurement.bus_bytes / most / 1e9, "gb_per_second_high": measurement.bus_bytes / least / 1e9,
    }  # fmt: skip


def _line(fit, measurements):
    """Points of the fitted lines, at the sizes that were measured."""
    fitted = [measurement for measurement in measurements if (measurement.library, measurement.in_place) == (fit.library, fit.in_place)]
    for measurement in fitted if fit.regimes else []:
        regime = hockney.regime_of(fit.regimes, measurement.size_bytes)
        seconds = hockney.seconds_of(fit.regimes, measurement.size_bytes)
        yield {
            "library": fit.library, "regime": f"{fit.library} {regime.from_bytes}", "size": measurement.size_bytes,
            "us": seconds * 1e6, "gb_per_second": measurement.bus_bytes / seconds / 1e9,
        }  # fmt: skip


def _panel(field, title, points, lines, copied, colour_of):
    """One of the two diagrams: the times or the bandwidths by size."""
    sizes = sorted({point["size"] for point in points})
    labels = {"values": sizes[:: -(-len(sizes) // NUM_LABELS)], "labelExpr": SIZE_TEXT, "grid": False}
    y = logarithmic(field, title, format="~g", gridOpacity=0.5)
    curve = {"x": logarithmic("size", "size", **labels), "y": y, "color": named("library", colour_of)}
    ranges = curve | {"y": y | {"field": f"{field}_low"}, "y2": {"field": f"{field}_high"}}
    layers = layered(
        layer("line", curve, copied, strokeDash=[5, 4], strokeWidth=1.5),
        layer("line", curve | {"detail": {"field": "regime"}}, lines, strokeWidth=1.2),
        layer("rule", ranges, points, strokeWidth=1.2),
        layer("point", curve | {"shape": named("where", SHAPES)}, points, size=28, **DOT),
    )
    return {"width": PANEL, "height": PANEL, **layers}

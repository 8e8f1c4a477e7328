"""What the charts and pictures share: parts of Vega-Lite specifications, and their drawing."""

VERSION = "6.4"
# Width of a picture in pixels.
WIDTH = 620
CONFIG = {"background": "#fff", "font": "sans-serif", "view": {"stroke": None}, "legend": {"columns": 6, "labelLimit": 220}}
NEUTRAL = "#808080"
LEGEND = {"title": None, "orient": "top"}
DOT = {"filled": True, "opacity": 1}
# Widest letter of labels in pixels: a viewer's font may be wider than the one that the picture is laid out with.
WIDEST_LETTER = 6.5


def quantity(field, title, **options):
    """The channel of a field of numbers."""
    return {"field": field, "type": "quantitative", "title": title} | options


def logarithmic(field, title, **axis):
    """The channel of a field of numbers on a logarithmic axis that ends where the numbers end."""
    return quantity(field, title, scale={"type": "log", "nice": False}, axis=axis)


def named(field, look_of, **legend):
    """The channel of a field of names, each with its colour or shape in {name: look}."""
    scale = {"domain": list(look_of), "range": list(look_of.values())}
    return {"field": field, "type": "nominal", "scale": scale, "legend": LEGEND | legend}


def tooltip(*fields, **formats):
    """The channel of a text that shows fields, and {field: format} of numbers."""
    return [*({"field": field} for field in fields), *({"field": field, "format": form} for field, form in formats.items())]


def layer(mark, encoding, rows=None, **look):
    """A layer of marks. `rows`: its own data, None for that of the whole chart."""
    data = {} if rows is None else {"data": {"values": rows}}
    return data | {"mark": {"type": mark} | look, "encoding": encoding}


def layered(*layers):
    """The layers as a part of a specification. Those without rows are left out: Vega-Lite cannot infer a scale for them."""
    return {"layer": [layer for layer in layers if "data" not in layer or layer["data"]["values"]]}


def on_page(height, **parts):
    """A specification that is as wide as its place on a page."""
    return {"width": "container", "height": height, "autosize": {"type": "fit-x", "contains": "padding"}, **parts}


def stacked_bars(rows, size, name, part, colour_of, **label):
    """A bar for each `name`, of parts in the order of {part: colour}. `size`: the channel of the parts' sizes."""
    parts = list(colour_of)
    encoding = {
        "x": size | {"stack": "zero"},
        "y": {"field": name, "type": "nominal", "title": None} | label,
        "color": named(part, colour_of),
        "order": {"field": "place"},
    }
    return {"data": {"values": [row | {"place": parts.index(row[part])} for row in rows]}} | layer("bar", encoding)


def labels(names):
    """The labels of bars in the order of their names, none of which is cut."""
    extent = WIDEST_LETTER * max(map(len, names))
    return {"sort": names, "axis": {"labelLimit": 2 * extent, "minExtent": extent}}


def below_each_other(specs):
    """{title: specification for a page} as one specification."""
    drawn = [
        {name: part for name, part in spec.items() if name != "autosize"} | {"width": WIDTH, "title": title}
        for title, spec in specs.items()
    ]
    return {"vconcat": drawn}


def svg(spec):
    """A specification as SVG text."""
    # Slow to import, and used only here.
    import vl_convert

    return vl_convert.vegalite_to_svg({"config": CONFIG} | spec, vl_version=VERSION)


def png(spec):
    """A specification as the bytes of a PNG file."""
    import vl_convert

    return vl_convert.vegalite_to_png({"config": CONFIG} | spec, vl_version=VERSION)

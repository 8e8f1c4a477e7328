"""What the charts and pictures share: parts of Vega-Lite specifications, and their drawing."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from common import cache
from common.backends import ROOT
from common.errors import UserError, printable

# A part of a specification in Vega-Lite's JSON.
Spec = dict[str, Any]
VERSION = "6.4"
# Width of a picture in pixels.
WIDTH = 620
CONFIG = {"background": "#fff", "font": "sans-serif", "view": {"stroke": None}, "legend": {"columns": 6, "labelLimit": 220}}
NEUTRAL = "#808080"
LEGEND = {"title": None, "orient": "top"}
DOT = {"filled": True, "opacity": 1}
# Widest letter of labels in pixels: a viewer's font may be wider than the one that the picture is laid out with.
WIDEST_LETTER = 6.5
LONGEST_REASON = 200
# The program that draws, which imports no module from the folder of a user.
DRAWING = (sys.executable, str(ROOT / "launch" / "run_module.py"), "launch.report.export.drawing")


class NotDrawn(UserError):
    """A chart that could not be drawn, and why."""


def quantity(field: str, title: str | None, **options: Any) -> Spec:
    """Returns the channel of a field of numbers."""
    return {"field": field, "type": "quantitative", "title": title} | options


def named(field: str, look_of: Mapping[str, str], **legend: Any) -> Spec:
    """Returns the channel of a field of names, each with its colour or shape."""
    scale = {"domain": list(look_of), "range": list(look_of.values())}
    return {"field": field, "type": "nominal", "scale": scale, "legend": LEGEND | legend}


def tooltip(*fields: str, **formats: str) -> list[Spec]:
    """Returns the channel of a text that shows fields, and fields of numbers with their formats."""
    return [*({"field": field} for field in fields), *({"field": field, "format": form} for field, form in formats.items())]


def layer(mark: str, encoding: Spec, rows: Sequence[Spec] | None = None, **look: Any) -> Spec:
    """Returns a layer of marks, with data of its own or that of the whole chart."""
    data = {} if rows is None else {"data": {"values": rows}}
    return data | {"mark": {"type": mark} | look, "encoding": encoding}


def layered(*layers: Spec) -> Spec:
    """Returns the layers as a part of a specification. Those without rows are left out: Vega-Lite cannot infer a scale for them."""
    return {"layer": [layer for layer in layers if "data" not in layer or layer["data"]["values"]]}


def on_page(height: float, **parts: Any) -> Spec:
    """Returns a specification that is as wide as its place on a page."""
    return {"width": "container", "height": height, "autosize": {"type": "fit-x", "contains": "padding"}, **parts}


def stacked_bars(rows: Iterable[Spec], size: Spec, name: str, part: str, colour_of: Mapping[str, str], **label: Any) -> Spec:
    """Returns a bar for each `name`, of parts in the order of their colours. `size` is the channel of the parts' sizes."""
    parts = list(colour_of)
    encoding = {
        "x": size | {"stack": "zero"},
        "y": {"field": name, "type": "nominal", "title": None} | label,
        "color": named(part, colour_of),
        "order": {"field": "place"},
    }
    return {"data": {"values": [row | {"place": parts.index(row[part])} for row in rows]}} | layer("bar", encoding)


def labels(names: Sequence[str]) -> Spec:
    """Returns the labels of bars in the order of their names, none of which is cut."""
    extent = WIDEST_LETTER * max(map(len, names))
    return {"sort": names, "axis": {"labelLimit": 2 * extent, "minExtent": extent}}


def below_each_other(specs: Mapping[str, Spec]) -> Spec:
    """Returns specifications for a page, by title, as one specification."""
    drawn = [
        {name: part for name, part in spec.items() if name != "autosize"} | {"width": WIDTH, "title": title}
        for title, spec in specs.items()
    ]
    return {"vconcat": drawn}


def svg(spec: Spec) -> str:
    """Returns a specification as SVG text. Raises NotDrawn where that fails."""
    return _drawn("vegalite_to_svg", vl_spec=_whole(spec)).decode()


def png(spec: Spec) -> bytes:
    """Returns a specification as the bytes of a PNG file. Raises NotDrawn where that fails."""
    return _drawn("vegalite_to_png", vl_spec=_whole(spec))


def library() -> str:
    """Returns Vega, Vega-Lite and Vega-Embed, as bundled with the package: nothing is fetched. Raises NotDrawn where that fails.

    Bundling takes seconds, so the text is kept in the cache.
    """
    folder = cache.folder()
    file = folder and folder / f"vega-lite-{VERSION}-{version('vl-convert-python')}.js"
    text = cache.read(file)
    if not text:
        text = _drawn("javascript_bundle").decode()
        cache.write(file, text)
    return text


def _whole(spec: Spec) -> Spec:
    return {"config": CONFIG, **_printable(spec)}


def _printable(value: Any) -> Any:
    """Returns a part of a specification, whose texts have printable characters only: no picture can hold others."""
    match value:
        case str():
            return printable(value)
        case dict():
            return {name: _printable(part) for name, part in value.items()}
        case list() | tuple():
            return [_printable(part) for part in value]
    return value


def _drawn(function: str, **arguments: Any) -> bytes:
    """Calls a function of vl_convert in a process of its own: where memory is short, V8 ends the process it is in."""
    question = json.dumps({"function": function, "arguments": arguments | {"vl_version": VERSION}})
    done = subprocess.run(DRAWING, input=question.encode(), capture_output=True, check=False)
    if done.returncode:
        lines = [text for line in done.stderr.decode(errors="replace").splitlines() if (text := line.strip("# "))]
        by_signal = done.returncode < 0
        ended = f"was ended by {signal.Signals(-done.returncode).name}" if by_signal else "failed"
        # V8 gives the cause before its stack, Python after it.
        reason = lines[0 if by_signal else -1][:LONGEST_REASON] if lines else ""
        raise NotDrawn(printable(f"drawing {ended}" + (f" ({reason})" if reason else "")))
    return done.stdout

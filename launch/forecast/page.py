"""The page of a forecast: a picture of efficiency by size, and the sentences."""

from collections.abc import Sequence
from html import escape

import altair
import vl_convert

from launch.forecast.answers import Answer, sentences
from launch.forecast.tables import Table


def text(answer: Answer, tables: Sequence[Table]) -> str:
    """Returns the whole page."""
    marks = list(answer.forecasts)
    for table in tables:
        for size, throughput in table.throughputs.items():
            equal = dict.fromkeys(("efficiency", "efficiency_low", "efficiency_high"), table.efficiency(size, throughput))
            marks.append({"training": table.training, "backend": table.backend, "size": size, "measured": True, **equal})
    axis = altair.Axis(values=sorted({mark["size"] for mark in marks}), grid=False)
    x = altair.X("size:Q", title=answer.forecasts[0]["unit"], scale=altair.Scale(type="log", base=2), axis=axis)
    y, color = altair.Y("efficiency:Q", title="efficiency"), altair.Color("backend:N", title=None)
    line = altair.Chart().encode(x=x, y=y, color=color)
    ends = {"y": altair.Y("efficiency_low:Q", title="efficiency"), "y2": "efficiency_high:Q"}
    layers = altair.layer(
        altair.Chart().mark_area(opacity=0.2).encode(x=x, color=color, **ends),
        line.mark_line(),
        line.mark_point(filled=True, size=60, opacity=1).transform_filter("datum.measured"),
        data=altair.Data(values=marks),
    )
    picture = layers.properties(width=620, height=300).facet(row=altair.Row("training:N", title=None))
    below = "".join(f"<p>{escape(sentence)}</p>\n" for sentence in sentences(answer))
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Forecast at other sizes</title></head>
<body style="font-family: sans-serif; max-width: 50em; margin: auto">
<h1>Forecast at other sizes</h1>
<p>Points are measured; lines and their 90 % bands are forecast.</p>
{vl_convert.vegalite_to_svg(picture.to_dict())}
{below}</body>
</html>
"""

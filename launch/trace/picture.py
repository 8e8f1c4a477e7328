"""Draws some steps of a merged trace: a row per rank and track, spans as bars, nested spans below each other.

python -m launch.trace.picture TRACE PICTURE.png --first-step 4 --num-steps 2
"""

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro
from PIL import Image

from common import command_line, durable
from common.command_line import FROM_0, FROM_1
from common.errors import UserError
from common.tracing import chrome
from common.tracing.chrome import Event
from launch.report.export import vega_lite
from launch.report.export.vega_lite import layer, layered, named, quantity

PROGRAM = "python -m launch.trace.picture"
MAX_DEPTH = 3
# In pixels. A thinner bar would not be seen.
WIDTH, LINE_HEIGHT, BAR_HEIGHT, FONT_SIZE, LETTER, THINNEST_BAR = 806, 19, 17.5, 8, 5, 0.4
# Between two rows, in lines.
GAP = 0.6
# The first pattern that matches a span's name gives its label and colour.
COLOURS = (
    (r"^data$", "waiting for data", "#9a9a9a"),
    (r"^step$|^ProfilerStep", "step", "#e4e4e4"),
    (r"^stage \d+ forward", "forward", "#4c7fb8"),
    (r"^stage \d+ weight", "gradients of weights", "#a7cfb4"),
    (r"^NEGOTIATE|barrier|^WAIT|^QUEUE", "negotiation and waiting", "#f2c14e"),
    (r"MEMCPY|FUSION_BUFFER|copy_bucket|flatten_dense", "copies for collectives", "#9d6bb5"),
    (r"gloo:|mpi:|nccl|^(MPI|NCCL|GLOO|CCL)_|^MPI|ALLREDUCE|BROADCAST|ALLGATHER|c10d::", "collectives", "#c8443c"),
    (r"Optimizer|optimizer|SGD|Adam|Resource.*Apply", "optimizer", "#e08a3c"),
    (r"[Bb]ackward|Backprop|autograd|Grad", "backward", "#4f9d69"),
    (r"", "forward and other work", "#4c7fb8"),
)
# What a pipeline's stage computes for a micro-batch is labelled STAGE.MICROBATCH.
STAGE = re.compile(r"^stage (\d+) \D+ (\d+)$")
# A specification of Vega-Lite.
Spec = dict[str, Any]


class Bar(NamedTuple):
    """A span in a row; milliseconds since the picture's start, and the number of enclosing spans."""

    name: str
    start: float
    end: float
    depth: int


class Row(NamedTuple):
    """A track of a rank: its spans and instants in milliseconds since the picture's start."""

    rank: int
    name: str
    bars: list[Bar]
    instants: list[float]


def step_window(events: Iterable[Event], first_step: int, num_steps: int) -> tuple[float, float]:
    """Finds the start and the end of steps of rank 0, in microseconds. Raises UserError where the trace does not have them."""
    steps = {}
    for event in events:
        if event.get("name") == "step" and event["pid"] == 0:
            steps[event["args"]["step"]] = event["ts"], event["ts"] + event["dur"]
    last_step = first_step + num_steps - 1
    if num_steps < 1 or not steps.keys() >= {first_step, last_step}:
        steps_in_trace = f"steps {min(steps)} to {max(steps)}" if steps else "no steps"
        raise UserError(f"the trace has {steps_in_trace} of rank 0; choose --first-step and --num-steps from them")
    return steps[first_step][0], steps[last_step][1]


def rows(events: Iterable[Event], start: float, end: float, leave_out: str | None = None, only: str = "") -> list[Row]:
    """Collects the tracks of a window in microseconds, in the trace's order, without those whose names match `leave_out`.

    The names of the spans match `only`.
    """
    names, spans, instants = {}, {}, {}
    for event in events:
        track = event["pid"], event["tid"]
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                names[track] = event["args"]["name"]
        elif event["ph"] == "X" and event["ts"] < end and event["ts"] + event["dur"] > start and re.search(only, event["name"]):
            spans.setdefault(track, []).append(event)
        elif event["ph"] == "i" and start <= event["ts"] < end:
            instants.setdefault(track, []).append((event["ts"] - start) / 1000)
    return [
        Row(rank, names.get((rank, tid), str(tid)), _bars(spans.get((rank, tid), []), start, end), instants.get((rank, tid), []))
        for rank, tid in sorted(spans.keys() | instants.keys())
        if not (leave_out and re.search(leave_out, names.get((rank, tid), "")))
    ]


def _bars(spans: Iterable[Event], start: float, end: float) -> list[Bar]:
    """Makes bars of the spans of one track, cut to the window."""
    bars, open_until = [], []
    for event in sorted(spans, key=lambda span: (span["ts"], -span["dur"])):
        until = event["ts"] + event["dur"]
        # Times are rounded: an inner span may seem to end after the outer one.
        while open_until and open_until[-1] <= event["ts"] + 0.01:
            open_until.pop()
        bars.append(Bar(event["name"], (max(event["ts"], start) - start) / 1000, (min(until, end) - start) / 1000, len(open_until)))
        open_until.append(until)
    return bars


def kind_of(name: str) -> str:
    """Returns the label of a span by its name."""
    return next(label for pattern, label, _ in COLOURS if re.search(pattern, name))


def draw(rows_drawn: Sequence[Row], path: Path, title: str) -> None:
    """Draws tracks into a PNG or SVG file, by its name's ending. Raises UserError where there is nothing to draw."""
    if not rows_drawn:
        raise UserError("the trace has nothing in this window")
    drawn = spec(rows_drawn, title)
    with durable.replacing(path) as part:
        if path.suffix == ".svg":
            part.write_text(vega_lite.svg(drawn))
        else:
            # Pillow compresses the same picture to a third of the bytes.
            Image.open(io.BytesIO(vega_lite.png(drawn))).save(part, "png", optimize=True)


def spec(rows_drawn: Sequence[Row], title: str) -> Spec:
    """Returns the Vega-Lite specification of tracks, one below the other."""
    end = max([bar.end for row in rows_drawn for bar in row.bars] + [instant for row in rows_drawn for instant in row.instants])
    bars, instants, names, top = [], [], [], 0.0
    for row in rows_drawn:
        bars_drawn = [bar for bar in row.bars if bar.depth < MAX_DEPTH]
        bars += [_drawn(bar, top + bar.depth + 0.5, end / WIDTH) for bar in bars_drawn]
        instants += [{"start": instant, "y": top + 0.5} for instant in row.instants]
        height = 1 + max((bar.depth for bar in bars_drawn), default=0)
        names.append({"y": top + height / 2, "text": f"rank {row.rank} {row.name}"})
        top += height + GAP
    kinds_drawn = {bar["kind"] for bar in bars}
    colour_of = {kind: colour for _, kind, colour in COLOURS if kind in kinds_drawn}
    x = quantity("start", "ms", scale={"domain": [0, end], "nice": False})
    y = quantity("y", None, scale={"domain": [top, -GAP / 2], "nice": False}, axis=None)
    area = {"x": x, "x2": {"field": "end"}, "y": y, "color": named("kind", colour_of, orient="bottom", columns=0)}
    text = {"y": y, "text": {"field": "text"}}
    layers = layered(
        layer("rect", area, bars, height=BAR_HEIGHT, stroke="white", strokeWidth=0.2),
        layer("text", text | {"x": x}, bars, align="left", dx=2, fontSize=FONT_SIZE, clip=True),
        layer("tick", {"x": x, "y": y}, instants, orient="vertical", size=FONT_SIZE, color="black"),
        layer("text", text | {"x": {"value": 0}}, names, align="right", dx=-6),
    )
    return {"title": title, "width": WIDTH, "height": LINE_HEIGHT * top, **layers}


def _drawn(bar: Bar, y: float, pixel: float) -> dict[str, str | float]:
    """Returns the data of a bar; `pixel` is the width of one in milliseconds."""
    text = STAGE.sub(r"\1.\2", bar.name)
    fits = bar.end - bar.start > pixel * LETTER * len(text)
    end = max(bar.end, bar.start + pixel * THINNEST_BAR)
    return {"start": bar.start, "end": end, "y": y, "kind": kind_of(bar.name), "text": text if fits else ""}


@dataclass(frozen=True)
class Arguments:
    """What to draw."""

    trace: Annotated[Path, tyro.conf.Positional]
    """A merged trace."""
    picture: Annotated[Path, tyro.conf.Positional]
    """The file to write, .png or .svg."""
    first_step: Annotated[int, FROM_0] = 4
    """The first step of rank 0 in the picture, counted from 0."""
    num_steps: Annotated[int, FROM_1] = 1
    """How many steps."""
    leave_out: str = "memory|cycles"
    """Regular expression of the tracks that are not drawn."""
    only: str = ""
    """Regular expression of the spans that are drawn. A pipeline's: "^stage"."""
    title: str = ""
    """Title of the picture."""


def run(arguments: Arguments) -> int:
    """Draws a picture; returns the exit status."""
    if arguments.picture.suffix not in (".png", ".svg"):
        raise UserError(f"{arguments.picture} should end with .png or .svg")
    for flag, pattern in (("--leave-out", arguments.leave_out), ("--only", arguments.only)):
        try:
            re.compile(pattern)
        except re.error as problem:
            raise UserError(f"{flag} {pattern!r} is not a regular expression ({problem})") from None
    try:
        start, end = step_window(chrome.events(arguments.trace), arguments.first_step, arguments.num_steps)
        rows_drawn = rows(chrome.events(arguments.trace), start, end, arguments.leave_out, arguments.only)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
        message = f"{arguments.trace} is not a merged trace: an event has a wrong or missing entry ({problem})"
        raise UserError(f"{message}; give one of launch.trace.timeline") from None
    try:
        draw(rows_drawn, arguments.picture, arguments.title)
    except OSError as problem:
        raise UserError(f"{arguments.picture} cannot be written ({problem.strerror}); name another file") from None
    return 0


if __name__ == "__main__":
    command_line.main(run, Arguments, PROGRAM, "Draws some steps of a merged trace, a row per rank and track.")

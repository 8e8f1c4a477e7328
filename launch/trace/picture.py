"""Draws some steps of a merged trace: a row per rank and track, spans as bars, nested spans below each other.

python -m launch.trace.picture TRACE PICTURE.png --first-step 4 --num-steps 2
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

from common import command_line
from common.errors import UserError
from common.tracing import chrome

PROGRAM = "python -m launch.trace.picture"
MAX_DEPTH = 3
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
# Of a pipeline: what a stage computes for a micro-batch, which is labelled with both numbers.
STAGE = re.compile(r"^stage (\d+) \D+ (\d+)$")


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


def step_window(events, first_step, num_steps):
    """(start, end) in microseconds of steps of rank 0. Raises UserError where the trace does not have them."""
    steps = {}
    for event in events:
        if event.get("name") == "step" and event["pid"] == 0:
            steps[event["args"]["step"]] = event["ts"], event["ts"] + event["dur"]
    steps_drawn = range(first_step, first_step + num_steps)
    if num_steps < 1 or not all(step in steps for step in steps_drawn):
        steps_there = f"steps {min(steps)} to {max(steps)}" if steps else "no steps"
        raise UserError(f"the trace has {steps_there} of rank 0; choose --first-step and --num-steps from them")
    return steps[steps_drawn[0]][0], steps[steps_drawn[-1]][1]


def rows(events, start, end, leave_out=None, only=""):
    """The Rows of a window in microseconds, in the trace's order, without tracks whose names match `leave_out`.

    `only`: what the names of the spans match.
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


def _bars(spans, start, end):
    """The spans of one track as Bars, cut to the window."""
    bars, open_until = [], []
    for event in sorted(spans, key=lambda span: (span["ts"], -span["dur"])):
        until = event["ts"] + event["dur"]
        # Times are rounded: an inner span may seem to end after the outer one.
        while open_until and open_until[-1] <= event["ts"] + 0.01:
            open_until.pop()
        bars.append(Bar(event["name"], (max(event["ts"], start) - start) / 1000, (min(until, end) - start) / 1000, len(open_until)))
        open_until.append(until)
    return bars


def kind_of(name):
    """(label, colour) of a span by its name."""
    return next((label, colour) for pattern, label, colour in COLOURS if re.search(pattern, name))


def text_of(name):
    """The text in a span: its name, and of a pipeline's STAGE.MICROBATCH."""
    stage = STAGE.match(name)
    return f"{stage[1]}.{stage[2]}" if stage else name


def draw(rows_drawn, path, title, max_depth=MAX_DEPTH):
    """Draws Rows into a PNG or SVG file, by its name's ending. Raises UserError where there is nothing to draw."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    if not rows_drawn:
        raise UserError("the trace has nothing in this window")
    heights = [max([min(bar.depth, max_depth - 1) + 1 for bar in row.bars], default=1) for row in rows_drawn]
    width = max([bar.end for row in rows_drawn for bar in row.bars] + [instant for row in rows_drawn for instant in row.instants])
    figure, axes = pyplot.subplots(figsize=(13, 1.2 + 0.24 * (sum(heights) + 0.6 * len(rows_drawn))), dpi=80)
    used_labels, ticks, labels, top = set(), [], [], 0.0
    for row, height in zip(rows_drawn, heights, strict=True):
        for bar in row.bars:
            if bar.depth < max_depth:
                label, colour = kind_of(bar.name)
                used_labels.add(label)
                visible_width = max(bar.end - bar.start, width / 2000)
                axes.broken_barh([(bar.start, visible_width)], (top + bar.depth, 0.92), facecolors=colour, edgecolor="white", linewidth=0.2)
                text = text_of(bar.name)
                if bar.end - bar.start > width * 0.0062 * len(text):
                    axes.text(bar.start + width * 0.002, top + bar.depth + 0.5, text, fontsize=7, va="center", clip_on=True)
        axes.plot(row.instants, [top + 0.5] * len(row.instants), "|", color="black", markersize=5)
        ticks.append(top + height / 2)
        labels.append(f"rank {row.rank}  {row.name}")
        top += height + 0.6
    axes.set(ylim=(top, -0.3), xlim=(0, width), xlabel="ms", title=title, yticks=ticks)
    axes.set_yticklabels(labels, fontsize=8)
    axes.grid(axis="x", linewidth=0.3)
    patches = [Patch(color=colour, label=label) for _, label, colour in COLOURS if label in used_labels]
    axes.legend(
        handles=patches,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.55 / figure.get_figheight()),
        ncols=len(patches),
        fontsize=8,
        frameon=False,
    )
    figure.savefig(path, bbox_inches="tight", metadata={"Software": None} if str(path).endswith(".png") else None)
    pyplot.close(figure)


@dataclass(frozen=True)
class Arguments:
    """What to draw."""

    trace: Annotated[Path, tyro.conf.Positional]
    """A merged trace."""
    picture: Annotated[Path, tyro.conf.Positional]
    """The file to write, .png or .svg."""
    first_step: int = 4
    """The first step of rank 0 in the picture, counted from 0."""
    num_steps: int = 1
    """How many steps."""
    leave_out: str = "memory|cycles"
    """Regular expression of the tracks that are not drawn."""
    only: str = ""
    """Regular expression of the spans that are drawn. A pipeline's: "^stage"."""
    title: str = ""
    """Title of the picture."""


def run(arguments):
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
    except (KeyError, TypeError) as problem:
        message = f"{arguments.trace} is not a merged trace: an event has a wrong or missing entry ({problem})"
        raise UserError(f"{message}; give one of launch.trace.timeline") from None
    try:
        draw(rows_drawn, arguments.picture, arguments.title)
    except OSError as problem:
        raise UserError(f"{arguments.picture} cannot be written ({problem.strerror}); name another file") from None
    return 0


if __name__ == "__main__":
    command_line.main(run, Arguments, PROGRAM, "Draws some steps of a merged trace, a row per rank and track.")

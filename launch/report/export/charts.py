"""The charts of the page, as Vega-Lite specifications, each with the table of what it shows. Pure."""

import itertools
from typing import NamedTuple

import numpy as np

from launch.display import ranks_of
from launch.plan import BASELINE
from launch.report import entries
from launch.report.export import colours
from launch.report.questions import cost, scaling, step
from launch.report.tables import ACCURACY, APART, BACKEND, MIB, RANKS, Column, Table

NEUTRAL = "#808080"
BAR_HEIGHT = 15
NUM_LOSS_POINTS = 120
SHOWN_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
QUANTILES = {"low": 0.05, "q1": 0.25, "median": 0.5, "q3": 0.75, "high": 0.95}


KINDS = (
    "Time to solution", "Accuracy over time", "Samples a second against the own 1 rank", f"Speed-up against {BASELINE}",
    "Where a run's time goes", "Parts of a step", "Step times", "Peak memory", "Loss",
)  # fmt: skip


class Chart(NamedTuple):
    """One of KINDS, of what `about` says. `table` is None where the section's own tables show the same numbers.

    `apart` marks what is no measure of scaling.
    """

    kind: str
    about: str
    caption: str
    spec: dict
    table: Table | None
    apart: bool


def of(answer):
    """{key of a section: its charts} of an answer; a chart that would have nothing in it is left out."""
    backends = list(dict.fromkeys(entry.backend for one in answer.comparisons for entry in one.entries))
    look = _Look(colours.of_backends(backends), colours.shapes_of(backends))
    found = {"first": [], "scaling": [], "cost": [], "step": [], "same": []}
    for one in answer.comparisons:
        found["scaling"] += _scaling(one, look)
        for apart in (False, True):
            chosen = one._replace(entries=tuple(entry for entry in one.entries if entry.oversubscribed == apart))
            name = f"{one.name}, {APART}" if apart else one.name
            if not chosen.entries:
                continue
            if one.target is not None:
                found["first"].append(_times(chosen, name, look, apart))
            if any(entry.ok for entry in chosen.entries):
                found["cost"] += [_memory(chosen, name, look, apart), _steps(chosen, name, look, apart)]
            for size in sorted({entry.ranks for entry in chosen.entries if entry.ok}):
                ran = [entry for entry in chosen.entries if entry.ranks == size and entry.ok]
                at = f"{one.name}, {ranks_of(size)}"
                if one.target is not None:
                    found["first"].append(_accuracy(ran, at, one.target, look, apart))
                found["cost"].append(_stages(ran, at, apart))
                found["step"].append(_parts(ran, at, apart))
                found["same"].append(_losses(ran, at, look, apart))
    return {key: sorted(filter(None, made), key=lambda chart: (chart.apart, KINDS.index(chart.kind))) for key, made in found.items()}


class _Look(NamedTuple):
    """Each backend's colour and shape, and the channels of a chart that has some of the backends in it."""

    colours: dict[str, str]
    shapes: dict[str, str]

    def colour(self, used):
        """The colour channel; the legend names what the chart shows, and no more."""
        shown = [backend for backend in self.colours if backend in used]
        scale = {"domain": shown, "range": [self.colours[backend] for backend in shown]}
        return {"field": "backend", "type": "nominal", "scale": scale, "legend": {"title": None, "orient": "top"}}

    def shape(self, used):
        shown = [backend for backend in self.shapes if backend in used]
        scale = {"domain": shown, "range": [self.shapes[backend] for backend in shown]}
        return self.colour(used) | {"scale": scale}

    def order(self, used):
        return [backend for backend in self.colours if backend in used]


def _spec(values, height, **parts):
    return {
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": values},
        **parts,
    }


def _number(field, title, **more):
    return {"field": field, "type": "quantitative", "title": title} | more


def _by_size(rows, look):
    """Height and channels of bars in groups, one group a size, one bar a backend."""
    used = {row["backend"] for row in rows}
    group = {"field": "ranks", "type": "ordinal", "title": "ranks", "axis": {"grid": False}, "scale": {"paddingInner": 0.25}}
    channels = {"y": group, "yOffset": {"field": "backend", "sort": look.order(used)}, "color": look.colour(used)}
    return BAR_HEIGHT * len(used) * len({row["ranks"] for row in rows}) * 1.25, channels


def _times(compared, name, look, apart):
    rows, dots = [], []
    for entry in compared.entries:
        seconds = entries.time_of(entry)
        here = {"backend": entry.backend, "ranks": entry.ranks}
        said = f"{seconds:.2f} s" if seconds is not None else (entries.misses(entry) or ["no time"])[0]
        reached = [time for time in entries.times(entry) if time is not None]
        rows.append(here | {"seconds": seconds or 0, "said": said, "end": max([seconds or 0, *reached])})
        dots += [here | {"seconds": time} for time in reached if len(entry.runs) > 1]
    height, channels = _by_size(rows, look)
    axis = _number("seconds", "time to solution (s)", scale={"zero": True})
    tooltip = [{"field": "backend"}, {"field": "ranks"}, {"field": "said", "title": "time to solution"}]
    placed = {key: channels[key] for key in ("y", "yOffset")}
    layers = [
        {"mark": {"type": "bar"}, "encoding": {"x": axis, **channels, "tooltip": tooltip}},
        {
            "mark": {"type": "text", "align": "left", "dx": 5, "fontSize": 10},
            "encoding": {"x": axis | {"field": "end"}, **placed, "text": {"field": "said"}},
        },
        {
            "data": {"values": dots},
            "mark": {"type": "point", "size": 18, "filled": True, "color": "#fff", "stroke": "#000", "strokeWidth": 0.8, "opacity": 1},
            "encoding": {"x": axis, **placed, "tooltip": [{"field": "backend"}, {"field": "seconds", "format": ".2f"}]},
        },
    ]
    # A layer without rows would have no scale to stand on.
    layers = layers if dots else layers[:2]
    caption = "Shorter is better. " + ("Each dot is a run." if dots else "One run each.")
    return Chart("Time to solution", name, caption, _spec(rows, height, layer=layers), None, apart)


def _accuracy(ran, at, target, look, apart):
    rows = []
    for entry in ran:
        for number, run in enumerate(entry.ok):
            begun = (run["load_seconds"] or 0.0) if not run.get("resumed_after_epochs") else 0.0
            lengths = [
                train + (evaluate or 0.0)
                for train, evaluate in zip(run["train_seconds"], run["eval_seconds"], strict=False)
                if train is not None
            ]
            # Of two matrices a backend has two runs of one repeat.
            here = {"backend": entry.backend, "run": number, "repeat": run["repeat"]}
            ends = itertools.accumulate(lengths, initial=begun)
            next(ends)
            rows += [
                here | {"epoch": epoch, "seconds": round(end, 3), "accuracy": accuracy}
                for epoch, (end, accuracy) in enumerate(zip(ends, run["accuracies"], strict=False), 1) if accuracy is not None
            ]  # fmt: skip
    if not rows:
        return None
    used = {row["backend"] for row in rows}
    x = _number("seconds", "seconds on the clock", scale={"zero": True})
    y = _number("accuracy", "accuracy", scale={"zero": False})
    curve = {"x": x, "y": y, "color": look.colour(used), "detail": {"field": "run"}}
    tooltip = [{"field": name} for name in ("backend", "repeat", "epoch", "seconds")] + [{"field": "accuracy", "format": ".4f"}]
    layers = [
        {
            "data": {"values": [{"accuracy": target}]},
            "mark": {"type": "rule", "strokeDash": [4, 4], "color": NEUTRAL},
            "encoding": {"y": y},
        },
        {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": curve},
        {
            "mark": {"type": "point", "filled": True, "size": 40, "opacity": 1},
            "encoding": curve | {"shape": look.shape(used), "tooltip": tooltip},
        },
    ]
    columns = (BACKEND, Column("repeat"), Column("epoch"), Column("seconds", ".2f"), ACCURACY)
    shown = [(row["backend"], row["repeat"], row["epoch"], row["seconds"], row["accuracy"]) for row in rows]
    table = Table(f"Accuracy over time: {at}", columns, shown)
    return Chart("Accuracy over time", at, f"The dashed line is the target, {target:g}.", _spec(rows, 230, layer=layers), table, apart)


def _scaling(compared, look):
    """Two charts for a comparison that has sizes with a core for each rank; oversubscribed sizes are in neither."""
    fair = [entry for entry in compared.entries if not entry.oversubscribed]
    if max((entry.ranks for entry in fair), default=1) == 1:
        return []
    single = compared.entry(BASELINE, 1)
    rates = {(entry.backend, entry.ranks): scaling.ratio_of_rates(compared, entry) for entry in fair}
    against = {(entry.backend, entry.ranks): entries.time_ratio(single, entry) for entry in fair}
    made = [_curves("Samples a second against the own 1 rank", compared.name, rates, "times those of 1 rank", look)]
    if any(against.values()):
        made.append(_curves(f"Speed-up against {BASELINE}", compared.name, against, "speed-up", look))
    return made


def _curves(kind, about, found, name, look):
    rows = [
        {"backend": backend, "ranks": ranks, "ratio": ratio.value, "low": ratio.low, "high": ratio.high}
        for (backend, ranks), ratio in found.items() if ratio and backend != BASELINE
    ]  # fmt: skip
    if not rows:
        return None
    sizes = sorted({row["ranks"] for row in rows} | {1})
    used = {row["backend"] for row in rows}
    x = _number("ranks", "ranks", scale={"type": "log", "base": 2}, axis={"values": sizes, "grid": False})
    # On two logarithmic axes the ideal is a straight line.
    y = _number("ratio", name, scale={"type": "log", "base": 2}, axis={"format": "~g"})
    tooltip = [{"field": "backend"}, {"field": "ranks"}, *({"field": key, "format": ".2f"} for key in ("ratio", "low", "high"))]
    layers = [
        {
            "data": {"values": [{"ranks": size, "ratio": size} for size in sizes]},
            "mark": {"type": "line", "strokeDash": [5, 5], "color": NEUTRAL},
            "encoding": {"x": x, "y": y},
        },
        {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {"x": x, "y": y, "color": look.colour(used)}},
        {
            "transform": [{"filter": "datum.low !== null && datum.ranks > 1"}],
            "mark": {"type": "rule", "strokeWidth": 1.5},
            "encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, "color": look.colour(used)},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": look.colour(used), "shape": look.shape(used), "tooltip": tooltip},
        },
    ]
    # A layer without rows would have no scale to stand on.
    has_intervals = any(row["low"] is not None for row in rows)
    layers = layers if has_intervals else [layer for layer in layers if layer["mark"]["type"] != "rule"]
    caption = f"The dashed line is the ideal.{' Vertical bars are 95 % intervals.' if has_intervals else ''}"
    return Chart(kind, about, caption, _spec(rows, 260, layer=layers), None, False)


def _memory(compared, name, look, apart):
    rows = [
        {"backend": entry.backend, "ranks": entry.ranks, "mib": round(entries.typical(entry, "peak_memory_bytes") / MIB, 1)}
        for entry in compared.entries if entry.ok
    ]  # fmt: skip
    height, channels = _by_size(rows, look)
    x = _number("mib", "peak memory per rank (MiB)")
    tooltip = [{"field": "backend"}, {"field": "ranks"}, {"field": "mib", "title": "MiB", "format": ".0f"}]
    spec = _spec(rows, height, mark={"type": "bar"}, encoding={"x": x, **channels, "tooltip": tooltip})
    return Chart("Peak memory", name, "The largest resident memory of a rank's process.", spec, None, apart)


def _steps(compared, name, look, apart):
    rows = []
    for entry in compared.entries:
        steps = [1000 * step for run in entry.ok for step in run["step_seconds"] if step is not None]
        if steps:
            found = dict(zip(QUANTILES, np.quantile(steps, list(QUANTILES.values())).round(3).tolist(), strict=True))
            rows.append({"backend": entry.backend, "ranks": entry.ranks} | found | {"most": round(max(steps), 3)})
    if not rows:
        return None
    height, channels = _by_size(rows, look)
    middle = channels["yOffset"] | {"bandPosition": 0.5}
    x = _number("low", "step (ms)", scale={"zero": True})
    tooltip = [{"field": "backend"}, {"field": "ranks"}, *({"field": key, "format": ".2f"} for key in (*QUANTILES, "most"))]
    layers = [
        {"mark": {"type": "rule", "strokeWidth": 1.5}, "encoding": {"x": x, "x2": {"field": "high"}, **channels, "yOffset": middle}},
        {"mark": {"type": "bar"}, "encoding": {"x": x | {"field": "q1"}, "x2": {"field": "q3"}, **channels, "tooltip": tooltip}},
        {
            "mark": {"type": "point", "shape": "stroke", "angle": 90, "color": "#fff", "size": 90, "strokeWidth": 2, "opacity": 1},
            "encoding": {"x": x | {"field": "median"}, "y": channels["y"], "yOffset": middle},
        },
    ]
    columns = (
        BACKEND, RANKS, Column("5 % (ms)", ".2f"), Column("25 % (ms)", ".2f"), Column("median (ms)", ".2f"), Column("75 % (ms)", ".2f"),
        Column("95 % (ms)", ".2f"), Column("longest (ms)", ".2f"),
    )  # fmt: skip
    table = Table(f"Step times: {name}", columns, [tuple(row.values()) for row in rows])
    caption = "Boxes hold the middle half of all steps, lines 90 % of them, the white mark is the median."
    return Chart("Step times", name, caption, _spec(rows, height, layer=layers), table, apart)


def _stages(ran, at, apart):
    rows = [
        {"backend": entry.backend, "stage": stage, "seconds": round(seconds, 3), "place": place}
        for entry in ran
        for place, (stage, seconds) in enumerate(cost.stages(entry).items()) if seconds is not None
    ]  # fmt: skip
    caption = "Launch, import and init come before the clock starts; load, train and evaluate are on it."
    return Chart("Where a run's time goes", at, caption, _stacked(rows, "stage", "seconds", colours.STAGES), None, apart) if rows else None


def _parts(ran, at, apart):
    rows = [
        {"backend": entry.backend, "part": part, "ms": round(max(0.0, ms), 3), "place": place}
        for entry in ran
        for place, (part, ms) in enumerate(step.parts(entry).items())
    ]
    caption = "The mean over the ranks; exposed is what a step takes longer than one without communication."
    return Chart("Parts of a step", at, caption, _stacked(rows, "part", "ms", colours.PARTS), None, apart) if rows else None


def _stacked(rows, of, number, colour_of):
    """A bar for each backend, of parts one after the other, as `place` has them."""
    scale = {"domain": list(colour_of), "range": list(colour_of.values())}
    encoding = {
        "x": _number(number, number, stack="zero"),
        "y": {"field": "backend", "type": "nominal", "sort": None, "title": None},
        "color": {"field": of, "type": "nominal", "scale": scale, "legend": {"title": None, "orient": "top"}},
        "order": {"field": "place"},
        "tooltip": [{"field": "backend"}, {"field": of}, {"field": number, "format": ".2f"}],
    }
    height = 1.6 * BAR_HEIGHT * len({row["backend"] for row in rows})
    return _spec(rows, height, mark={"type": "bar", "stroke": NEUTRAL, "strokeWidth": 0.6}, encoding=encoding)


def _losses(ran, at, look, apart):
    ran = [entry for entry in ran if entry.whole]
    by_backend = {entry.backend: _same_seed_losses(entry, ran) for entry in ran}
    longest = max((len(losses) for losses in by_backend.values()), default=0)
    steps = sorted({*range(1, min(longest, 20) + 1), *np.linspace(1, longest, NUM_LOSS_POINTS).astype(int).tolist()})
    rows = [
        {"step": step, "backend": backend, "loss": float(f"{losses[step - 1]:.5g}")}
        for backend, losses in by_backend.items() for step in steps if step <= len(losses) and losses[step - 1]
    ]  # fmt: skip
    if not rows:
        return None
    used = {row["backend"] for row in rows}
    encoding = {
        "x": _number("step", "step", scale={"nice": False}),
        "y": _number("loss", "loss (nats)", scale={"type": "log", "nice": False}),
        "color": look.colour(used),
        "tooltip": [{"field": "backend"}, {"field": "step"}, {"field": "loss", "format": ".5f"}],
    }
    # Equal curves hide one another: the first are drawn broad, so that each is seen beside those over it.
    layers = [
        {
            "transform": [{"filter": {"field": "backend", "equal": backend}}],
            "mark": {"type": "line", "strokeWidth": 1.2 + 1.3 * place},
            "encoding": encoding,
        }
        for place, backend in zip(reversed(range(len(used))), look.order(used), strict=True)
    ]
    shown = [step for step in (*SHOWN_STEPS, longest) if step <= longest]
    values = [
        (step, *(losses[step - 1] if step <= len(losses) else None for losses in by_backend.values())) for step in dict.fromkeys(shown)
    ]
    table = Table(f"Loss: {at}", (Column("step"), *(Column(backend, ".6f") for backend in by_backend)), values)
    caption = "One run of each backend, of the same seed where there is one; equal curves lie on one another."
    return Chart("Loss", at, caption, _spec(rows, 230, layer=layers), table, apart)


def _same_seed_losses(entry, ran):
    seed = ran[0].whole[0]["seed"]
    return next((run for run in entry.whole if run["seed"] == seed), entry.whole[0])["losses"]

"""The charts of the page, as Vega-Lite specifications, each with the table of its numbers."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from common.backends import BASELINE
from common.record.definition import Record
from launch.report import entries, factors, measures, noise, statistics
from launch.report.entries import Comparison, Entry
from launch.report.export import colours
from launch.report.export.vega_lite import DOT, NEUTRAL, Spec, layer, layered, named, on_page, quantity, stacked_bars, tooltip
from launch.report.questions import cost, scaling, step
from launch.report.statistics import Ratio
from launch.report.summary import Answer
from launch.report.tables import BACKEND, RANKS, Column, Table, accuracy_column, apart, filled, of_metric
from launch.report.words import ranks_of

# The rows of a chart: its data, and the subjects of its table.
ChartRow = dict[str, Any]
BAR_HEIGHT = 15
# Of a bar with dots for its runs, which are in its lower half, so that they do not cover the label beside its upper half.
BAR_HEIGHT_WITH_DOTS, LABEL_OFFSET = 20, -4
# A circle below its place, as an SVG path in radii: Vega-Lite has no offset of points that are grouped.
LOW_DOT = "M-1,2.2a1,1,0,1,1,2,0a1,1,0,1,1,-2,0"
NUM_LOSS_POINTS = 120
SHOWN_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
QUANTILES = {"low": 0.05, "q1": 0.25, "median": 0.5, "q3": 0.75, "high": 0.95}
# The kinds of charts by the key of their section, in the order of the page.
KINDS = {
    "first": ("Time to solution", "Accuracy over time", "Metric over time"),
    "scaling": ("Throughput over own 1 rank", scaling.SPEED_UP_OVER_PLAIN.capitalize()),
    "cost": ("Where a run's time goes", "Step times", "Peak memory"),
    "step": ("Parts of a step",),
    "same": ("Loss",),
    "quiet": ("Speed of the machine",),
}


class Chart(NamedTuple):
    """A chart for the comparison or entries named by `subject`. `table` is None where the section's tables have the same numbers."""

    kind: str
    subject: str
    caption: str
    spec: Spec
    table: Table | None
    oversubscribed: bool


def of(answer: Answer) -> dict[str, list[Chart]]:
    """Returns the charts of an answer by the key of their section; empty charts are left out."""
    look = _Look(colours.of_backends(answer.backends), colours.shapes_of(answer.backends))
    drawn: list[Chart | None] = [*_machine_speeds(answer.runs, look)]
    for comparison in answer.comparisons:
        drawn += _scaling(comparison, look)
        for name, chosen in apart(comparison.name, comparison.entries):
            charts = []
            if comparison.target is not None:
                charts.append(_times(chosen, name, look))
            completed = [entry for entry in chosen if entry.ok]
            charts += [_memory(completed, name, look), _steps(completed, name, look)]
            for size in sorted({entry.num_ranks for entry in completed}):
                same_size = [entry for entry in completed if entry.num_ranks == size]
                at = f"{comparison.name}, {ranks_of(size)}"
                if comparison.target is not None:
                    charts.append(_accuracy(same_size, at, comparison.target, comparison.metric, look))
                charts += [_stages(same_size, at), _parts(comparison, same_size, at), _losses(same_size, at, look)]
            drawn += [chart._replace(oversubscribed=chosen[0].oversubscribed) for chart in charts if chart]
    ordered = sorted(statistics.present(drawn), key=lambda chart: chart.oversubscribed)
    return {key: [chart for kind in kinds for chart in ordered if chart.kind == kind] for key, kinds in KINDS.items()}


class _Look(NamedTuple):
    """Each backend's colour and shape, and the encoding channels of a chart of some of the backends."""

    colours: dict[str, str]
    shapes: dict[str, str]

    def order(self, rows: Iterable[ChartRow]) -> list[str]:
        """Returns the backends of a chart's rows."""
        used = {row["backend"] for row in rows}
        return [backend for backend in self.colours if backend in used]

    def colour(self, rows: Iterable[ChartRow]) -> Spec:
        """Returns the colour channel; its legend has only the backends of the rows."""
        return named("backend", {backend: self.colours[backend] for backend in self.order(rows)})

    def shape(self, rows: Iterable[ChartRow]) -> Spec:
        """Returns the channel of the shape of points."""
        return named("backend", {backend: self.shapes[backend] for backend in self.order(rows)})


def _chart(
    kind: str,
    subject: str,
    caption: str,
    rows: Sequence[ChartRow],
    height: float,
    parts: Spec,
    columns: Sequence[Column[ChartRow]] = (),
) -> Chart | None:
    """Returns a chart of rows, and their table where there are columns; None without rows."""
    if not rows:
        return None
    spec = on_page(height, **({"data": {"values": rows}} | parts))
    table = next(iter(filled(f"{kind}: {subject}", columns, rows)), None) if columns else None
    return Chart(kind, subject, caption, spec, table, False)


def _column(field: str, name: str, form: str = "") -> Column[ChartRow]:
    """Returns the column of a field of a chart's rows."""
    return Column(name, itemgetter(field), form)


BACKENDS = _column("backend", BACKEND.name)


def _by_size(rows: Sequence[ChartRow], look: _Look, bar_height: int = BAR_HEIGHT) -> tuple[float, Spec]:
    """Returns the height and the channels of grouped bars: one group per size, one bar per backend."""
    group = {"field": "ranks", "type": "ordinal", "title": "ranks", "axis": {"grid": False}, "scale": {"paddingInner": 0.25}}
    backends = look.order(rows)
    channels = {"y": group, "yOffset": {"field": "backend", "sort": backends}, "color": look.colour(rows)}
    return bar_height * len(backends) * len({row["ranks"] for row in rows}) * 1.25, channels


def _times(compared: Iterable[Entry], name: str, look: _Look) -> Chart | None:
    rows: list[ChartRow] = []
    dots: list[ChartRow] = []
    for entry in compared:
        seconds = measures.time_of(entry)
        cell = {"backend": entry.backend, "ranks": entry.num_ranks}
        label = f"{seconds:.2f} s" if seconds is not None else (measures.misses(entry) or ["no time"])[0]
        reached = statistics.present(measures.times(entry))
        rows.append(cell | {"seconds": seconds or 0, "label": label})
        dots += [cell | {"seconds": time} for time in reached if len(entry.records) > 1]
    height, channels = _by_size(rows, look, BAR_HEIGHT_WITH_DOTS if dots else BAR_HEIGHT)
    axis = quantity("seconds", "time to solution (s)", scale={"zero": True})
    shown = [*tooltip("backend", "ranks"), {"field": "label", "title": "time to solution"}]
    place = {"x": axis, "y": channels["y"], "yOffset": channels["yOffset"]}
    dot = {"filled": True, "color": "#fff", "stroke": "#000", "strokeWidth": 0.8, "opacity": 1}
    layers = layered(
        layer("bar", {"x": axis, **channels, "tooltip": shown}),
        layer("text", place | {"text": {"field": "label"}}, align="left", dx=5, dy=LABEL_OFFSET if dots else 0, fontSize=10),
        layer("point", place | {"tooltip": tooltip("backend", seconds=".2f")}, dots, size=18, shape=LOW_DOT, **dot),
    )
    caption = "Shorter is better. " + ("Each dot is one run." if dots else "One run per entry.")
    return _chart("Time to solution", name, caption, rows, height, layers)


def _accuracy(ran: Iterable[Entry], at: str, target: float, metric: str, look: _Look) -> Chart | None:
    rows: list[ChartRow] = []
    for entry in ran:
        for number, record in enumerate(entry.ok):
            begun = (record.load_seconds or 0.0) if not record.resumed_after_epochs else 0.0
            epochs = zip(record.train_seconds, record.eval_seconds, strict=False)
            lengths = [train + (evaluate or 0.0) for train, evaluate in epochs if train is not None]
            ends = list(itertools.accumulate(lengths, initial=begun))[1:]
            # The repeat is not unique: two matrices may have the same one.
            run = {"backend": entry.backend, "run": number, "repeat": record.repeat}
            rows += [
                run | {"epoch": epoch, "seconds": round(end, 3), "accuracy": accuracy}
                for epoch, (end, accuracy) in enumerate(zip(ends, record.accuracies, strict=False), 1) if accuracy is not None
            ]  # fmt: skip
    y = quantity("accuracy", metric, scale={"zero": False})
    curve = {"x": quantity("seconds", "time (s)", scale={"zero": True}), "y": y, "color": look.colour(rows), "detail": {"field": "run"}}
    shown = tooltip("backend", "repeat", "epoch", "seconds", accuracy=".4f")
    layers = layered(
        layer("rule", {"y": y}, [{"accuracy": target}], strokeDash=[4, 4], color=NEUTRAL),
        layer("line", curve, strokeWidth=1.5),
        layer("point", curve | {"shape": look.shape(rows), "tooltip": shown}, size=40, **DOT),
    )
    columns = (
        BACKENDS,
        _column("repeat", "repeat"),
        _column("epoch", "epoch"),
        _column("seconds", "seconds", ".2f"),
        *of_metric([accuracy_column(itemgetter("accuracy"))], metric),
    )
    return _chart(f"{metric.capitalize()} over time", at, f"The dashed line is the target, {target:g}.", rows, 230, layers, columns)


def _scaling(comparison: Comparison, look: _Look) -> list[Chart | None]:
    """Returns two charts for a comparison with several sizes; oversubscribed sizes are left out."""
    fair = [entry for entry in comparison.entries if not entry.oversubscribed]
    if max((entry.num_ranks for entry in fair), default=1) == 1:
        return []
    throughputs = [(entry, scaling.ratio_of_rates(comparison, entry)) for entry in fair]
    speed_ups = [(entry, measures.time_ratio(factors.plain_entry(comparison, entry.backend), entry)) for entry in fair]
    curves = zip(KINDS["scaling"], (throughputs, speed_ups), ("ratio to 1 rank", "speed-up"), strict=True)
    return [_curves(kind, comparison.name, ratios, name, look) for kind, ratios, name in curves]


def _curves(kind: str, subject: str, ratios: Iterable[tuple[Entry, Ratio | None]], name: str, look: _Look) -> Chart | None:
    rows = [
        {"backend": entry.backend, "ranks": entry.num_ranks, "ratio": ratio.value, "low": ratio.low, "high": ratio.high}
        for entry, ratio in ratios if ratio and entry.backend != BASELINE
    ]  # fmt: skip
    sizes = sorted({row["ranks"] for row in rows} | {1})
    ideal = [{"ranks": size, "ratio": size} for size in sizes]
    intervals = [row for row in rows if row["low"] is not None and row["ranks"] > 1]
    x = quantity("ranks", "ranks", scale={"type": "log", "base": 2}, axis={"values": sizes, "grid": False})
    # With two logarithmic axes, ideal scaling is a straight line.
    y = quantity("ratio", name, scale={"type": "log", "base": 2}, axis={"format": "~g"})
    curve = {"x": x, "y": y, "color": look.colour(rows)}
    shown = tooltip("backend", "ranks", ratio=".2f", low=".2f", high=".2f")
    layers = layered(
        layer("line", {"x": x, "y": y}, ideal, strokeDash=[5, 5], color=NEUTRAL),
        layer("line", curve, strokeWidth=1.5),
        layer("rule", curve | {"y": y | {"field": "low"}, "y2": {"field": "high"}}, intervals, strokeWidth=1.5),
        layer("point", curve | {"shape": look.shape(rows), "tooltip": shown}, size=60, **DOT),
    )
    caption = f"The dashed line is ideal scaling.{' Vertical bars are 95 % intervals.' if intervals else ''}"
    return _chart(kind, subject, caption, rows, 260, layers)


def _memory(ran: Iterable[Entry], name: str, look: _Look) -> Chart | None:
    rows = [
        {"backend": entry.backend, "ranks": entry.num_ranks, "mib": round(mib, 1)}
        for entry in ran
        if (mib := cost.peak_mib(entry)) is not None
    ]
    height, channels = _by_size(rows, look)
    shown = [*tooltip("backend", "ranks"), {"field": "mib", "title": "MiB", "format": ".0f"}]
    bars = layer("bar", {"x": quantity("mib", "peak memory per rank (MiB)"), **channels, "tooltip": shown})
    return _chart("Peak memory", name, "Peak resident memory of a rank's process.", rows, height, bars)


def _steps(ran: Iterable[Entry], name: str, look: _Look) -> Chart | None:
    rows: list[ChartRow] = []
    for entry in ran:
        if steps := [1000 * step for record in entry.ok for step in statistics.present(record.step_seconds)]:
            quantiles = dict(zip(QUANTILES, np.quantile(steps, list(QUANTILES.values())).round(3).tolist(), strict=True))
            rows.append({"backend": entry.backend, "ranks": entry.num_ranks} | quantiles | {"max": round(max(steps), 3)})
    height, channels = _by_size(rows, look)
    middle = channels["yOffset"] | {"bandPosition": 0.5}
    x = quantity("low", "step (ms)", scale={"zero": True})
    shown = tooltip("backend", "ranks", **dict.fromkeys((*QUANTILES, "max"), ".2f"))
    line = {"x": x, "x2": {"field": "high"}, **channels, "yOffset": middle}
    box = {"x": x | {"field": "q1"}, "x2": {"field": "q3"}, **channels, "tooltip": shown}
    median = {"x": x | {"field": "median"}, "y": channels["y"], "yOffset": middle}
    layers = layered(
        layer("rule", line, strokeWidth=1.5),
        layer("bar", box),
        layer("point", median, shape="stroke", angle=90, color="#fff", size=90, strokeWidth=2, opacity=1),
    )
    names = dict(zip((*QUANTILES, "max"), ("5 %", "25 %", "median", "75 %", "95 %", "max"), strict=True))
    columns = (BACKENDS, _column("ranks", RANKS.name), *(_column(field, f"{name} (ms)", ".2f") for field, name in names.items()))
    return _chart("Step times", name, "Box: 25 to 75 % of all steps; line: 5 to 95 %; white mark: median.", rows, height, layers, columns)


def _stages(ran: Iterable[Entry], at: str) -> Chart | None:
    caption = "Time to solution includes load, train and evaluate, and excludes launch, import and init."
    seconds_of = {entry.backend: cost.stages(entry) for entry in ran}
    return _stacked("Where a run's time goes", at, caption, seconds_of, "stage", "seconds", colours.STAGES)


def _parts(comparison: Comparison, ran: Iterable[Entry], at: str) -> Chart | None:
    caption = "Mean over the ranks. Exposed communication: the step minus one without communication, less the same difference at 1 rank."
    milliseconds_of = {entry.backend: step.parts(comparison, entry) for entry in ran}
    return _stacked("Parts of a step", at, caption, milliseconds_of, "part", "ms", colours.PARTS)


def _stacked(
    kind: str,
    at: str,
    caption: str,
    sizes_of: Mapping[str, Mapping[str, float | None]],
    part: str,
    size: str,
    colour_of: Mapping[str, str],
) -> Chart | None:
    """Returns a stacked bar for each backend, of the sizes of its parts."""
    rows = [
        {"backend": backend, part: name, size: round(max(0.0, value), 3)}
        for backend, sizes in sizes_of.items() for name, value in sizes.items() if value is not None
    ]  # fmt: skip
    bars = stacked_bars(rows, quantity(size, size), "backend", part, colour_of, sort=None)
    bars["mark"] |= {"stroke": NEUTRAL, "strokeWidth": 0.6}
    bars["encoding"] |= {"tooltip": tooltip("backend", part, **{size: ".2f"})}
    return _chart(kind, at, caption, rows, 1.6 * BAR_HEIGHT * len({row["backend"] for row in rows}), bars)


def _losses(completed: Iterable[Entry], at: str, look: _Look) -> Chart | None:
    ran = [entry for entry in completed if entry.from_start]
    by_backend = {entry.backend: _same_seed_losses(entry, ran[0].from_start[0].seed) for entry in ran}
    longest = max((len(losses) for losses in by_backend.values()), default=0)
    steps = sorted({*range(1, min(longest, 20) + 1), *np.linspace(1, longest, NUM_LOSS_POINTS).astype(int).tolist()})
    rows = [
        {"step": step, "backend": backend, "loss": float(f"{losses[step - 1]:.5g}")}
        for backend, losses in by_backend.items() for step in steps if step <= len(losses) and losses[step - 1]
    ]  # fmt: skip
    backends = look.order(rows)
    encoding = {
        "x": quantity("step", "step", scale={"nice": False}),
        "y": quantity("loss", "loss (nats)", scale={"type": "log", "nice": False}),
        "color": look.colour(rows),
        "tooltip": tooltip("backend", "step", loss=".5f"),
    }
    # Equal curves cover each other: earlier ones are drawn wider, so that all stay visible.
    layers = layered(
        *(
            layer("line", encoding, strokeWidth=1.2 + 1.3 * place) | {"transform": [{"filter": {"field": "backend", "equal": backend}}]}
            for place, backend in zip(reversed(range(len(backends))), backends, strict=True)
        )
    )
    caption = "One run per backend, of the same seed where available; equal curves overlap."
    chart = _chart("Loss", at, caption, rows, 230, layers)
    # The subjects of the table are steps, since each of its rows has all backends.
    shown = dict.fromkeys(step for step in (*SHOWN_STEPS, longest) if step <= longest)
    columns: list[Column[int]] = [Column("step", lambda step: step)]
    columns += [Column(backend, partial(_loss_of, losses), ".6f") for backend, losses in by_backend.items()]
    return chart and chart._replace(table=next(iter(filled(f"Loss: {at}", columns, shown)), None))


def _loss_of(losses: Sequence[float | None], step: int) -> float | None:
    return losses[step - 1] if step <= len(losses) else None


def _same_seed_losses(entry: Entry, seed: int) -> Sequence[float | None]:
    return next((record for record in entry.from_start if record.seed == seed), entry.from_start[0]).losses


def _machine_speeds(records: Iterable[Record], look: _Look) -> list[Chart | None]:
    """Returns one chart for each matrix and size: the machine's speed beside its runs, in the order in which they started."""
    samples_of: dict[tuple[str, int], list[noise.Sample]] = {}
    for sample in noise.samples(records):
        samples_of.setdefault((entries.key_of(sample.record).matrix, sample.record.num_ranks), []).append(sample)
    return [_machine_speed(f"{matrix}, {ranks_of(size)}".removeprefix(", "), samples_of[matrix, size], look) for matrix, size in samples_of]


def _machine_speed(subject: str, samples: Iterable[noise.Sample], look: _Look) -> Chart | None:
    rows = [
        {"backend": sample.record.backend, "run": sample.record.settings.run_id, "started": sample.record.started_at,
         "kernel": f"{sample.kernel}, {sample.when}", "percent": round(sample.percent, 2)}
        for sample in sorted(samples, key=lambda sample: (sample.record.started_at, noise.TIMES.index(sample.when)))
    ]  # fmt: skip
    y = quantity("percent", "from the median (%)")
    limits = [{"percent": limit} for limit in (-noise.QUIET_PERCENT, noise.QUIET_PERCENT)]
    encoding = {
        "x": {"field": "started", "type": "temporal", "title": "start of the run"},
        "y": y,
        "color": look.colour(rows),
        "shape": {"field": "kernel", "type": "nominal"},
        "tooltip": tooltip("run", "kernel", "percent"),
    }
    layers = layered(
        layer("rule", {"y": y}, limits, strokeDash=[4, 4], color=NEUTRAL),
        layer("point", encoding, filled=True, size=50, opacity=0.8),
    )
    columns = (_column("run", "run"), _column("kernel", "kernel"), _column("percent", "from the median (%)", "+.1f"))
    caption = "A fixed product of matrices and a copy on every core of a run, just before and after it, against their medians."
    return _chart("Speed of the machine", subject, caption, rows, 200, layers, columns)

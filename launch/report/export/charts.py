"""The charts of the answer, one quantity each, drawn by Altair: the answer's own first, and then those of its questions."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from common.declarations import BASELINE
from common.record.definition import Record
from common.words import ranks_of
from launch.report.answer import Ranking
from launch.report.entries import Comparison, Entry
from launch.report.export import drawing
from launch.report.questions import scaling, step
from launch.report.questions.first import Result
from launch.report.report import Report

with drawing.home_folder():
    import altair
    from altair import Color, LayerChart, Order, Scale, X, Y

# The data of a mark.
Mark = dict[str, Any]
# In pixels.
WIDTH, ROW_HEIGHT, BAR_HEIGHT = 620, 18, 24
# From the end of a bar to its label.
GAP = 7
# How much wider than its longest bar a chart is, for the labels.
WIDENING = 2.0
SHORTER = "Shorter is better. The seconds after + are start-up, from launch to the first step, which is not in the bars."
NEUTRAL = "#808080"
IN_ANSWER = "answer"
ONE_RUN_EACH = "One run per backend, of the same seed where available."
# Okabe and Ito, Color Universal Design (2008): eight colours that remain distinguishable under common colour blindness, with a medium grey
# for black, which would be invisible on a dark page. After them muted ones of Tol, "Colour Schemes" (SRON/EPS/TN/09-002, 2021). Where there
# are more backends, colours repeat, and labels tell them apart.
COLOURS = (
    "#8a8a8a", "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#f0e442",
    "#999933", "#882255", "#cc6677", "#ddcc77", "#44aa99", "#aa4499", "#332288", "#117733",
)  # fmt: skip
# Parts of a step are greys of one hue and different lightness, so that none looks like a backend.
PARTS: dict[str, str] = dict(zip(step.PARTS, ("#9aa7b8", "#c3ccd8", "#4d5a6b", "#2b3440"), strict=True))


class Chart(NamedTuple):
    """A chart of `kind`, such as the time to solution, for what `subject` names; `alt` has in words what it shows."""

    kind: str
    subject: str
    caption: str
    alt: str
    drawn: LayerChart | altair.FacetChart


def of(report: Report) -> dict[str, list[Chart]]:
    """Returns the charts by the key of their section, those of the answer itself under IN_ANSWER; empty charts are left out."""
    runs, answer, look_of = report.runs, report.answer, colours_of(report.runs.backends)
    charts: dict[str, list[Chart]] = defaultdict(list)
    for ranking in answer.rankings:
        charts[IN_ANSWER] += _answers(ranking, look_of)
    for comparison in runs.comparisons:
        charts["scaling"] += _scaling(comparison, look_of)
        for size, entries in comparison.by_size().items():
            same_size = [entry for entry in entries if entry.ok]
            at = f"{comparison.name}, {ranks_of(size)}"
            charts["first"] += _accuracy(same_size, at, comparison, look_of)
            charts["step"] += _parts(comparison, same_size, at)
    return charts


def picture(report: Report) -> str:
    """Returns the charts of the answer itself as SVG text."""
    drawn = [chart.drawn.properties(title=f"{chart.kind}: {chart.subject}") for chart in of(report)[IN_ANSWER]]
    return drawing.svgs([altair.vconcat(*drawn).resolve_scale(color="independent").to_dict()])[0]


def _chart(kind: str, subject: str, caption: str, marks: Sequence[Mark], words: str, height: float, *layers: altair.Chart) -> list[Chart]:
    """Returns a chart of marks in a list; an empty list without marks. `words`: the format of a mark in words, of a curve of its last."""
    if not marks:
        return []
    in_words = {(mark["backend"], mark.get("group"), mark.get("ranks"), mark.get("part")): words.format(**mark) for mark in marks}
    alt = f"{kind}: {subject}. {'; '.join(in_words.values())}."
    return [
        Chart(kind, subject, caption, alt, altair.layer(*layers, data=altair.Data(values=marks)).properties(width=WIDTH, height=height))
    ]


def _colour(look_of: Mapping[str, str], marks: Iterable[Mark], field: str = "backend") -> Color:
    """Returns the colours of a field; the legend has what the marks have."""
    used = {mark[field] for mark in marks}
    names = [name for name in look_of if name in used]
    scale = Scale(domain=names, range=[look_of[name] for name in names])
    return Color(f"{field}:N", scale=scale, legend=altair.Legend(title=None, orient="top"))


def _answers(ranking: Ranking, look_of: Mapping[str, str]) -> list[Chart]:
    """Returns the bars of the times to solution of a workload, or of its throughput without a target, below headings of their sizes."""
    marks: list[Mark] = []
    headings: list[Mark] = []
    for group in ranking.groups:
        headings.append({"row": len(marks) + len(headings), "heading": group.name})
        for result in group.results:
            bar = {"backend": result.backend, "value": result.value or 0.0, "label": f"{result.backend} {_value(result)}"}
            marks.append(bar | {"group": group.name, "row": len(marks) + len(headings)})
    kind, unit, best = ("Time to solution", "s", SHORTER) if ranking.has_target else ("Throughput", "samples/s", "Longer is better.")
    num_rows, longest = len(marks) + len(headings), max((mark["value"] for mark in marks), default=0.0)
    x = X("value:Q", title=f"{kind.lower()} ({unit})", scale=Scale(domain=[0, WIDENING * longest or 1]))
    y = Y("row:O", axis=None, scale=Scale(domain=list(range(num_rows))))
    of_groups = altair.Chart(altair.Data(values=headings)).mark_text(align="left", fontWeight="bold")
    return _chart(
        kind, f"{ranking.name}, target {ranking.target:g}" if ranking.has_target else ranking.name, best,
        marks, "{label} ({group})", ROW_HEIGHT * num_rows,
        altair.Chart().mark_bar().encode(x=x, y=y, color=_colour(look_of, marks).legend(None)),
        of_groups.encode(x=altair.value(0), y=y, text="heading:N"),
        altair.Chart().mark_text(align="left", dx=GAP).encode(x=X("value:Q"), y=y, text="label:N"),
    )  # fmt: skip


def _value(result: Result) -> str:
    if result.value is None:
        return result.miss or ""
    value = f"{result.value:.0f}" if result.entry.target is None else f"{result.value:.2f} s {result.startup}".rstrip()
    return f"{value}, {result.remark}" if result.remark else value


def _accuracy(ran: Sequence[Entry], at: str, comparison: Comparison, look_of: Mapping[str, str]) -> list[Chart]:
    """Returns the accuracy, or other metric, over time of one run of each backend."""
    if comparison.target is None:
        return []
    marks: list[Mark] = []
    for backend, record in _one_run_each(ran).items():
        epochs = zip(record.train_seconds, record.eval_seconds, strict=False)
        lengths = [train + (evaluate or 0.0) for train, evaluate in epochs if train is not None]
        ends = itertools.islice(itertools.accumulate(lengths, initial=record.load_seconds or 0.0), 1, None)
        marks += [
            {"backend": backend, "epoch": epoch, "seconds": round(end, 3), "accuracy": accuracy}
            for epoch, (end, accuracy) in enumerate(zip(ends, record.accuracies, strict=False), 1) if accuracy is not None
        ]  # fmt: skip
    metric = comparison.metric
    y = Y("accuracy:Q", title=metric, scale=Scale(zero=False))
    curve = altair.Chart().encode(x=X("seconds:Q", title="time (s)"), y=y, color=_colour(look_of, marks))
    return _chart(
        f"{metric.capitalize()} over time", at, f"{ONE_RUN_EACH} The dashed line is the target, {comparison.target:g}.", marks,
        "{backend} {accuracy:.3g} after {seconds:.3g} s", 230,
        altair.Chart(altair.Data(values=[{"accuracy": comparison.target}])).mark_rule(strokeDash=[4, 4], color=NEUTRAL).encode(y=y),
        curve.mark_line(strokeWidth=1.5),
        curve.mark_point(filled=True, opacity=1),
    )  # fmt: skip


def _one_run_each(ran: Iterable[Entry]) -> dict[str, Record]:
    """Returns a run of each backend that trained from the start, of the same seed where there is one."""
    started = [entry for entry in ran if entry.from_start]
    seed = started[0].from_start[0].seed if started else None
    return {entry.backend: next((record for record in entry.from_start if record.seed == seed), entry.from_start[0]) for entry in started}


def _scaling(comparison: Comparison, look_of: Mapping[str, str]) -> list[Chart]:
    """Returns the throughput over that of a backend's own 1 rank by the number of ranks, for a comparison with several sizes."""
    marks = [
        {
            "backend": entry.backend, "ranks": entry.num_ranks,
            "ratio": ratio.value, "low": ratio.low or ratio.value, "high": ratio.high or ratio.value,
        }
        for entries in comparison.by_size().values() for entry in entries
        if entry.backend != BASELINE and (ratio := scaling.ratio_of_rates(comparison, entry))
    ]  # fmt: skip
    sizes = sorted({mark["ranks"] for mark in marks} | {1})
    if sizes == [1]:
        return []
    # With two logarithmic axes, ideal scaling is a straight line.
    logarithmic = Scale(type="log", base=2)
    x = X("ranks:Q", scale=logarithmic, axis=altair.Axis(values=sizes, grid=False, format="d"))
    y = Y("ratio:Q", title="ratio to 1 rank", scale=logarithmic, axis=altair.Axis(format="~g"))
    curve = altair.Chart().encode(x=x, y=y, color=_colour(look_of, marks))
    ideal = altair.Data(values=[{"ranks": size, "ratio": size} for size in sizes])
    return _chart(
        "Throughput over own 1 rank", comparison.name, "The dashed line is ideal scaling. Vertical lines are 95 % intervals.", marks,
        "{backend} {ratio:.2f} at {ranks} ranks", 260,
        altair.Chart(ideal).mark_line(strokeDash=[5, 5], color=NEUTRAL).encode(x=x, y=y),
        curve.mark_line(strokeWidth=1.5),
        curve.mark_rule(strokeWidth=1.5).encode(y=Y("low:Q"), y2="high:Q"),
        curve.mark_point(filled=True, opacity=1, size=60),
    )  # fmt: skip


def _parts(comparison: Comparison, ran: Sequence[Entry], at: str) -> list[Chart]:
    """Returns a stacked bar for each backend, of the milliseconds of the parts of its step."""
    parts_of = {entry.backend: step.parts(comparison, entry) for entry in ran}
    marks = [
        {"backend": backend, "part": name, "size": round(max(0.0, value), 3), "order": step.PARTS.index(name)}
        for backend, parts in parts_of.items() for name, value in parts.items() if value is not None
    ]  # fmt: skip
    bars = altair.Chart().mark_bar(stroke=NEUTRAL, strokeWidth=0.6).encode(
        x=X("size:Q", title="ms", stack="zero"),
        y=Y("backend:N", title=None, sort=list(parts_of)),
        color=_colour(PARTS, marks, "part"),
        order=Order("order:Q"),
    )  # fmt: skip
    return _chart(
        "Parts of a step", at,
        "Mean over the ranks. Exposed communication: the step minus one without communication, less the same difference at 1 rank.",
        marks, "{backend} {part} {size:.3g} ms", BAR_HEIGHT * len({mark["backend"] for mark in marks}), bars,
    )  # fmt: skip


def colours_of(backends: Iterable[str]) -> dict[str, str]:
    """Returns the colour of each backend."""
    return dict(zip(backends, itertools.cycle(COLOURS)))

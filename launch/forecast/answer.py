"""Forecasts as sentences, tables and plain data. Pure."""

import math

from launch.forecast.rows import FAR, KNEE
from launch.report.tables import BACKEND, RANKS, RATE, Column, Section, filled
from launch.report.words import listed, ranks_of

# Of algorithms, those of whose simulation the formula is more than 5 % off (launch/forecast/README.md).
SHARE_LINKS = {"halving", "tree", "hierarchical"}
QUESTION = "What will more ranks do?"
COLUMNS = (
    BACKEND, RANKS, Column("nodes"), Column("kind"), Column("step (ms)", ",.2f"), Column("from", ",.2f"), Column("to", ",.2f"),
    Column("compute", ",.2f"), Column("stragglers", ",.2f"), Column("exposed", ",.2f"), Column("unexplained", ",.2f"),
    RATE, Column("efficiency (%)", ".1f"), Column("Extra-P step", ",.2f"), Column("epochs", ".1f"), Column("run (s)", ",.1f"),
)  # fmt: skip
HELD_OUT_COLUMNS = (
    BACKEND, RANKS, Column("fitted on"), Column("measured step (ms)", ".2f"), Column("predicted (ms)", ".2f"), Column("error (%)", "+.0f"),
)  # fmt: skip
BASIS_COLUMNS = (
    BACKEND, Column("all-reduce"), Column("network"), Column("exchanges start"), Column("tail of steps fitted beyond (ranks)", ",d"),
    Column("efficiency below 50 % from (ranks)", ",d"),
)  # fmt: skip


def section(subjects, left_out, wish):
    """The Section of Subjects and of sentences on what was left out."""
    tables, sentences = [], []
    for about in dict.fromkeys(one.about for one in subjects):
        own = [one for one in subjects if one.about == about]
        columns = (*COLUMNS, Column(_hours(own[0]), ",.4g"), *([Column("price", ",.4g")] if wish.price is not None else []))
        tables += filled(about, columns, [_row(one, each, wish) for one in own for each in one.forecasts])
        tables += filled(f"Held out: {about}", HELD_OUT_COLUMNS, [_held_out_row(one, each) for one in own for each in one.held_out])
        tables += filled(f"What the forecasts rest on: {about}", BASIS_COLUMNS, [_basis_row(one) for one in own])
        sentences += [_error(own), *_impossible(own), *_opinions(own), _proposal(own, wish)]
    notes = dict.fromkeys(note for one in subjects for note in one.notes)
    return Section("forecast", QUESTION, [*sentences, *left_out, *notes, *_explained(subjects)], tables)


def _hours(subject):
    unit = "GPU-hours" if subject.on_gpu else "core-hours"
    return unit if subject.has_target else f"{unit} per epoch"


def _row(subject, one, wish):
    parts = [None] * 4 if one.parts is None else [1000 * part for part in one.parts[1:]]
    scaled = [value if value is None else 1000 * value for value in (one.step_seconds, one.low_seconds, one.high_seconds)]
    opinion = one.second_opinion_seconds
    row = (
        subject.backend, one.num_ranks, one.num_nodes, one.kind, *scaled, *parts, one.samples_per_second, 100 * one.efficiency,
        opinion and 1000 * opinion, one.epochs, one.run_seconds, one.hours,
    )  # fmt: skip
    return (*row, one.cost) if wish.price is not None else row


def _held_out_row(subject, one):
    seconds = 1000 * one.measured_seconds, 1000 * one.predicted_seconds
    return subject.backend, one.num_ranks, one.fitted_on, *seconds, 100 * one.error


def _basis_row(subject):
    starts = "measured" if subject.measured[-1].exchanges_are_measured else "evenly over the backward pass"
    return (
        subject.backend, " or ".join(subject.model.algorithms), subject.network, starts if subject.model.exchanges else "none",
        subject.model.slowest.largest_known, subject.knee,
    )  # fmt: skip


def _error(own):
    worst = max((each for one in own for each in one.held_out), key=lambda each: abs(each.error))
    return (
        f"{own[0].about}: held-out errors of {', '.join(f'{one.backend} {_worst(one):.0f} %' for one in own)}; the largest is "
        f"at {ranks_of(worst.num_ranks)}, fitted on {worst.fitted_on}."
    )


def _impossible(own):
    """Why some sizes have no forecast: the first reason."""
    if reasons := {size: reason for one in own for size, reason in one.impossible.items()}:
        sizes = listed([f"{size:,}" for size in sorted(reasons)])
        yield f"{own[0].about}: no forecast at {sizes} ranks: {reasons[min(reasons)]}."


def _opinions(own):
    """Extra-P's models of the same steps, or why there are none."""
    if without := [one for one in own if one.opinion.function is None]:
        yield f"{own[0].about}, no second opinion on {listed([one.backend for one in without])}: {without[0].opinion.formula}."
    if found := [f"{one.backend} {one.opinion.formula}" for one in own if one.opinion.function]:
        yield f"{own[0].about}, Extra-P's seconds of a step on p ranks: {'; '.join(found)}."


def _worst(subject):
    return 100 * max(abs(each.error) for each in subject.held_out)


def _proposal(own, wish):
    """The sentence for a proposal: of the fastest backend, at the largest size asked for that is still efficient, or at the smallest."""
    candidates = [(one, each) for one in own for each in one.forecasts if each.kind != "measured"]
    if not candidates:
        return f"{own[0].about}: nothing to propose, since none of the sizes is both possible and not measured."
    efficient = [(one, each) for one, each in candidates if each.efficiency >= KNEE]
    chosen = (max if efficient else min)(each.num_ranks for _, each in efficient or candidates)
    one, each = max(
        ((one, each) for one, each in efficient or candidates if each.num_ranks == chosen), key=lambda found: found[1].samples_per_second
    )
    low, high = (each.samples_per_second * each.step_seconds / seconds for seconds in (each.high_seconds, each.low_seconds))
    sizes = " and ".join(f"{size.num_ranks:,}" for size in (one.measured[0], one.measured[-1]))
    knee = f"efficiency falls below 50 % at about {one.knee:,} ranks" if one.knee else "efficiency stays above 50 %"
    run = f"; a run takes {each.run_seconds:,.0f} s, {each.hours:,.3g} {_hours(one)}" if each.run_seconds else ""
    price = f" at {wish.price:g} each" if each.run_seconds and wish.price is not None else ""
    far = f", an extrapolation beyond {FAR} times the largest measured size" if each.kind == "extrapolated" else ""
    return (
        f"For a proposal: {one.about}, with {one.backend} on {each.num_ranks:,} ranks, should train {each.samples_per_second:,.0f} "
        f"samples/s ({low:,.0f} to {high:,.0f}){far}, an efficiency of {100 * each.efficiency:.0f} %, from runs on {sizes} ranks with a "
        f"held-out error of up to {_worst(one):.0f} %; {knee}{run}{price}."
    )


def _explained(subjects):
    """What holds for all forecasts."""
    yield (
        "A band is the largest held-out error, once for each doubling beyond the largest measured size. Forecasts beyond "
        f"{FAR} times that size are extrapolated."
    )
    if any(each.num_ranks > one.model.slowest.largest_known for one in subjects for each in one.forecasts):
        yield "Stragglers at more ranks than the measured steps answer are those of a tail fitted to them, independent on every rank."
    if any(one.model.machine.ranks_per_node > 1 and {*one.model.algorithms} & SHARE_LINKS for one in subjects):
        yield "Where the ranks of a node share its link, halving, tree and hierarchical are up to 12 % slower by formula than simulated."
    if any(each.epochs for one in subjects for each in one.forecasts):
        yield (
            "Epochs are pooled over exact backends, with those of oversubscribed runs, which cores do not change. Under weak "
            "scaling those at other sizes are a guess, by the critical-batch line of McCandlish et al. 2018, arXiv:1812.06162."
        )
    if any(each.run_seconds is None for one in subjects for each in one.forecasts):
        yield "Without the seconds of a run: its global batch is larger than the data set, or no measured run reached the target."


def as_json(subjects, left_out):
    """Everything as plain data for a JSON file; numbers that are not finite are None."""
    return {
        "forecasts": [
            {"about": one.about, "backend": one.backend, **_plain(each._asdict()), "parts": each.parts and each.parts._asdict()}
            for one in subjects for each in one.forecasts
        ],
        "held_out": [
            {"about": one.about, "backend": one.backend, **each._asdict(), "error": each.error}
            for one in subjects for each in one.held_out
        ],
        "knees": [{"about": one.about, "backend": one.backend, "num_ranks": one.knee} for one in subjects],
        "notes": [*dict.fromkeys(note for one in subjects for note in one.notes), *left_out],
    }  # fmt: skip


def _plain(values):
    return {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()}

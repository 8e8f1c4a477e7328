"""Forecasts as sentences, tables and plain data, and as a section of a report."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from launch.forecast.scaling import forecasts
from launch.forecast.scaling.forecasts import FAR, KNEE, Forecast, Subject, Wish
from launch.forecast.scaling.held_out import HeldOut
from launch.report.summary import Answer
from launch.report.tables import BACKEND, RANKS, Column, Section, filled, milliseconds, rate_column, through
from launch.report.words import listed, ranks_of

QUESTION = "What will more ranks do?"


class Row(NamedTuple):
    """A forecast and its subject."""

    subject: Subject
    forecast: Forecast


class HeldOutRow(NamedTuple):
    """A subject and a test of its forecasts at a size that was left out of the fit."""

    subject: Subject
    test: HeldOut


def _milliseconds(seconds_of: Callable[[Row], float | None]) -> Callable[[Row], float | None]:
    return lambda row: milliseconds(seconds_of(row))


def _part(key: str) -> Callable[[Row], float | None]:
    """Returns a function that gives the milliseconds of a part of a forecast step, None where the step is not divided."""
    seconds_of = attrgetter(key)
    return lambda row: None if row.forecast.parts is None else 1000 * seconds_of(row.forecast.parts)


def _starts(subject: Subject) -> str:
    """Returns whether the starts of a subject's exchanges in a step are measured or assumed."""
    if not subject.model.exchanges:
        return "none"
    return "measured" if subject.sizes[-1].exchanges_are_measured else "evenly over the backward pass"


COLUMNS: tuple[Column[Row], ...] = (
    *through("subject", BACKEND),
    *through("forecast", RANKS),
    Column("nodes", attrgetter("forecast.num_nodes")),
    Column("kind", attrgetter("forecast.kind")),
    Column("step (ms)", _milliseconds(attrgetter("forecast.step_seconds")), ",.2f"),
    Column("from", _milliseconds(attrgetter("forecast.low_seconds")), ",.2f"),
    Column("to", _milliseconds(attrgetter("forecast.high_seconds")), ",.2f"),
    Column("compute", _part("compute"), ",.2f"),
    Column("stragglers", _part("stragglers"), ",.2f"),
    Column("exposed", _part("exposed"), ",.2f"),
    Column("unexplained", _part("unexplained"), ",.2f"),
    rate_column(attrgetter("forecast.samples_per_second")),
    Column("efficiency (%)", lambda row: 100 * row.forecast.efficiency, ".1f"),
    Column("epochs", attrgetter("forecast.epochs"), ".1f"),
    Column("run (s)", attrgetter("forecast.run_seconds"), ",.1f"),
)
HELD_OUT_COLUMNS: tuple[Column[HeldOutRow], ...] = (
    *through("subject", BACKEND),
    *through("test", RANKS),
    Column("fitted on", attrgetter("test.fitted_on")),
    Column("measured step (ms)", lambda row: 1000 * row.test.measured_seconds, ".2f"),
    Column("predicted (ms)", lambda row: 1000 * row.test.predicted_seconds, ".2f"),
    Column("error (%)", lambda row: 100 * row.test.error, "+.0f"),
)
BASIS_COLUMNS: tuple[Column[Subject], ...] = (
    BACKEND,
    Column("all-reduce", attrgetter("model.algorithm")),
    Column("network", attrgetter("model.network")),
    Column("exchanges start", _starts),
    Column("efficiency below 50 % from (ranks)", attrgetter("knee"), ",d"),
)


def with_forecasts(report: Answer, wish: Wish) -> Answer:
    """Returns a report with a section of forecasts after that on scaling. Raises UserError where nothing can be forecast."""
    subjects, left_out = forecasts.of(report.comparisons, wish)
    place = 1 + next(number for number, reported in enumerate(report.sections) if reported.key == "scaling")
    sections = [*report.sections[:place], section(subjects, left_out), *report.sections[place:]]
    return report._replace(sections=sections)


def section(subjects: Sequence[Subject], left_out: Iterable[str]) -> Section:
    """Returns the section on subjects, with the sentences on what was left out."""
    tables, sentences = [], []
    for about in dict.fromkeys(subject.about for subject in subjects):
        group = [subject for subject in subjects if subject.about == about]
        columns = (*COLUMNS, Column(_hours(group[0]), attrgetter("forecast.hours"), ",.4g"))
        tables += filled(about, columns, [Row(subject, forecast) for subject in group for forecast in subject.forecasts])
        held_out = [HeldOutRow(subject, test) for subject in group for test in subject.held_out]
        tables += filled(f"Held out: {about}", HELD_OUT_COLUMNS, held_out)
        tables += filled(f"What the forecasts rest on: {about}", BASIS_COLUMNS, group)
        sentences += [_error(group), *_impossible(group), _proposal(group)]
    return Section("forecast", QUESTION, [*sentences, *left_out, *_notes(subjects), *_explained(subjects)], tables)


def _notes(subjects: Iterable[Subject]) -> list[str]:
    """Returns what was assumed, each assumption once."""
    return list(dict.fromkeys(note for subject in subjects for note in subject.model.notes))


def _hours(subject: Subject) -> str:
    unit = "GPU-hours" if subject.on_gpu else "core-hours"
    return unit if subject.has_target else f"{unit} per epoch"


def _error(group: Sequence[Subject]) -> str:
    worst = max((test for subject in group for test in subject.held_out), key=lambda test: abs(test.error))
    errors = ", ".join(f"{subject.backend} {_worst(subject):.0f} %" for subject in group)
    largest = f"the largest is at {ranks_of(worst.num_ranks)}, fitted on {worst.fitted_on}"
    return f"{group[0].about}: held-out errors of {errors}; {largest}."


def _impossible(group: Sequence[Subject]) -> Iterator[str]:
    """Explains why some sizes have no forecast, by the first reason."""
    if reasons := {size: reason for subject in group for size, reason in subject.impossible.items()}:
        sizes = listed([f"{size:,}" for size in sorted(reasons)])
        yield f"{group[0].about}: no forecast at {sizes} ranks: {reasons[min(reasons)]}."


def _worst(subject: Subject) -> float:
    return 100 * max(abs(test.error) for test in subject.held_out)


def _proposal(group: Sequence[Subject]) -> str:
    """Writes the sentence for a proposal: the fastest backend at the largest requested size that is still efficient, or the smallest."""
    candidates = [(subject, forecast) for subject in group for forecast in subject.forecasts if forecast.kind != "measured"]
    if not candidates:
        return f"{group[0].about}: nothing to propose, since none of the sizes is both possible and not measured."
    efficient = [(subject, forecast) for subject, forecast in candidates if forecast.efficiency >= KNEE]
    chosen = (max if efficient else min)(forecast.num_ranks for _, forecast in efficient or candidates)
    subject, forecast = max(
        ((subject, forecast) for subject, forecast in efficient or candidates if forecast.num_ranks == chosen),
        key=lambda candidate: candidate[1].samples_per_second,
    )
    samples_per_step = forecast.samples_per_second * forecast.step_seconds
    low, high = (samples_per_step / (seconds or math.inf) for seconds in (forecast.high_seconds, forecast.low_seconds))
    sizes = " and ".join(f"{size.num_ranks:,}" for size in (subject.sizes[0], subject.sizes[-1]))
    knee = (
        f"efficiency falls below 50 % at about {subject.knee:,} ranks"
        if subject.knee
        else f"efficiency stays above 50 % up to {FAR * subject.sizes[-1].num_ranks:,} ranks"
    )
    run = f"; a run takes {forecast.run_seconds:,.0f} s, {forecast.hours:,.3g} {_hours(subject)}" if forecast.run_seconds else ""
    return (
        f"For a proposal: {subject.about}, with {subject.backend} on {forecast.num_ranks:,} ranks, should train "
        f"{forecast.samples_per_second:,.0f} samples/s ({low:,.0f} to {high:,.0f}), an efficiency of "
        f"{100 * forecast.efficiency:.0f} %, from runs on {sizes} ranks with a held-out error of up to {_worst(subject):.0f} %; "
        f"{knee}{run}."
    )


def _explained(subjects: Sequence[Subject]) -> Iterator[str]:
    """Explains what holds for all forecasts."""
    yield "A band is the largest held-out error, once for each doubling beyond the largest measured size."
    if any(forecast.epochs for subject in subjects for forecast in subject.forecasts):
        yield (
            "Epochs are pooled over exact backends, with those of oversubscribed runs, which cores do not change. Under weak "
            "scaling those at other sizes are a guess, by the critical-batch line of McCandlish et al. 2018, arXiv:1812.06162."
        )
    if any(forecast.run_seconds is None for subject in subjects for forecast in subject.forecasts):
        yield "Without the seconds of a run: its global batch is larger than the data set, or no measured run reached the target."


def as_json(subjects: Sequence[Subject], left_out: Iterable[str]) -> dict[str, list]:
    """Returns everything as plain data for a JSON file; numbers that are not finite are None."""
    return {
        "forecasts": [_of(subject) | _plain(forecast) for subject in subjects for forecast in subject.forecasts],
        "held_out": [_of(subject) | test._asdict() | {"error": test.error} for subject in subjects for test in subject.held_out],
        "knees": [_of(subject) | {"num_ranks": subject.knee} for subject in subjects],
        "notes": [*_notes(subjects), *left_out],
    }


def _of(subject: Subject) -> dict[str, str]:
    return {"about": subject.about, "backend": subject.backend}


def _plain(forecast: Forecast) -> dict[str, Any]:
    values = {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in forecast._asdict().items()}
    return values | {"parts": forecast.parts and forecast.parts._asdict()}

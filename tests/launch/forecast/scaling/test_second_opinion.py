"""Extra-P's model of the same steps: there with five sizes and more, and where it is installed."""

import sys

import pytest

from launch.forecast.scaling import answer, forecasts, second_opinion
from launch.forecast.scaling.forecasts import Wish
from launch.report import entries
from tests.launch.forecast.scaling.test_forecasts import COMPUTE, record, ring
from tests.support.made_records import typed

SIZES = (1, 2, 4, 8, 16)


def subject(sizes):
    records = [record(size, unexplained=0.0) for size in sizes]
    (forecast_subject,), _ = forecasts.of(entries.comparisons(typed(records)), Wish((64,)))
    return forecast_subject


def test_from_five_sizes_it_is_shown_beside_ours():
    pytest.importorskip("extrap")
    forecast_subject = subject(SIZES)
    row = forecast_subject.forecasts[-1]
    # A ring's time is nearly a line in the number of ranks.
    assert row.step_seconds == pytest.approx(COMPUTE + ring(64))
    assert row.second_opinion_seconds == pytest.approx(row.step_seconds, rel=0.3)
    section = answer.section([forecast_subject], [])
    assert any(sentence.startswith("cnn, weak scaling, Extra-P's seconds of a step on p ranks: ddp ") for sentence in section.sentences)


def test_where_it_is_not_installed_that_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "extrap.entities.callpath", None)
    opinion = second_opinion.of(subject(SIZES).sizes)
    assert opinion.function is None
    assert opinion.formula.startswith("Extra-P is not installed here (import of extrap.entities.callpath halted")

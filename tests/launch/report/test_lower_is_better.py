"""A metric of which less is better, such as an error: the report has its name and its direction."""

import pytest

from launch.report.export import charts
from launch.report.questions import baseline, failed, first
from launch.report.table import epochs_to_target
from launch.run.session import outcome
from tests.support.answers import answered
from tests.support.made_records import made, not_reached, typed

ERROR = {"metric": "metric", "lower_is_better": True, "target": 2.0, "accuracy": 1.5, "accuracies": [4.0, 1.5]}
MISSED = {**ERROR, "accuracy": 3.0, "accuracies": [3.0, 3.5]}


def test_a_target_is_met_from_above_and_the_metric_has_its_name():
    (record,) = typed([made(**ERROR)])
    assert epochs_to_target(record) == 2
    assert outcome(record) == "reached 2 in 10.00 s (metric 1.5000)"
    report = answered([made(**ERROR), made(backend="fsdp", **ERROR)])
    (table,) = first.answer(report.runs.comparisons[0]).tables
    assert "metric" in table.headings
    assert "accuracy" not in table.headings
    assert "Metric over time" in [chart.kind for chart in charts.of(report)["first"]]


def test_a_run_that_missed_it_is_named_with_its_least_value():
    runs = [not_reached(**MISSED), not_reached(repeat=1, **MISSED | {"accuracy": 2.5})]
    assert failed.failure(typed(runs)[0])[1] == "metric 3.0000, loss 0.5 after 2 epochs; the target is 2"
    assert [result.miss for result in answered(runs).answer.rankings[0].groups[0].results] == ["not reached (2.5), 4.50 s an epoch"]


@pytest.mark.parametrize(
    ("after", "verdict"), [((1.7, 1.71, 1.72), "worse"), ((1.3, 1.31, 1.32), "better"), ((-1.0, -1.1, -1.2), "better")]
)
def test_more_of_it_is_worse_and_relative_to_a_negative_one_nothing_is(after, verdict):
    old = {"stamp": "20250101-000000", "started_at": "2025-01-01T00:00:00Z"}
    before = [made(repeat=repeat, **ERROR | {"accuracy": value}, **old) for repeat, value in enumerate((1.5, 1.51, 1.52))]
    new = [made(repeat=repeat, **ERROR | {"accuracy": value}) for repeat, value in enumerate(after)]
    changes = {change.measure.name: change.verdict for change in baseline.compare(typed(new), typed(before)).changes}
    assert changes["metric"] == verdict
    reverse = {change.measure.name for change in baseline.compare(typed(before), typed(new)).changes}
    assert ("metric" in reverse) == (after[0] > 0)


@pytest.mark.parametrize("changed", [{"accuracy": 1.5}, {"target": 2.0}, {"accuracies": [0.5, -0.1]}])
def test_an_accuracy_is_from_0_to_1(changed):
    with pytest.raises(ValueError, match="is not from 0 to 1"):
        made(**changed)

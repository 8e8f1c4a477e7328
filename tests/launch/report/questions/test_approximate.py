"""What approximate backends gain and cost."""

import pytest

from tests.support.answers import answered, line, lines, section
from tests.support.made_records import made, not_reached, repeats

SECONDS = [10.0, 11.0, 12.0, 10.5, 11.5, 12.5]


def approximate(seconds, accuracy=0.975, losses=(3.0, 2.2, 1.0, 0.5), **changes):
    values = {"backend": "weight_averaging@4", "num_ranks": 2, "exact": False, "accuracy": accuracy, "losses": list(losses)}
    return repeats(seconds, **values | changes)


EXACT = [*repeats(SECONDS, num_ranks=2, exact=True), *repeats(SECONDS, backend="horovod_tf", num_ranks=2)]
RECORDS = [*EXACT, *approximate([0.8 * section for section in SECONDS])]


def test_its_time_stands_beside_its_accuracy():
    row = line(RECORDS, "approximate")
    assert (row["ranks"], row["backend"], row["against"]) == (2, "weight_averaging@4", "ddp")
    assert row["seconds per epoch, ratio"] == pytest.approx(0.8, abs=0.02)
    assert row["loss difference, first 20 steps"] == pytest.approx(0.1)
    assert (row["accuracy after as many epochs"], row["accuracy of the other"]) == (pytest.approx(0.975), pytest.approx(0.98))
    assert (row["epochs to the target"], row["epochs of the other"]) == (2, 2)
    assert section(RECORDS, "approximate").sentences == [
        "cnn, weak scaling, 2 ranks: weight_averaging@4 is approximate; its losses differ by up to 1e-01 in the first 20 steps; an epoch "
        f"takes {row['seconds per epoch, ratio']:.2f} times ddp's seconds; after as many epochs its accuracy is 0.9750, ddp's 0.9800."
    ]


def test_with_another_global_batch_its_losses_are_not_compared():
    records = [*EXACT, *approximate(SECONDS, backend="parameter_server", data_parallel_degree=1)]
    row = line(records, "approximate")
    assert (row["backend"], row["against"], row["loss difference, first 20 steps"]) == ("parameter_server", "ddp", None)
    assert row["accuracy of the other"] == pytest.approx(0.98)


def test_accuracies_are_of_the_last_epoch_that_both_have_trained():
    longer = {"accuracies": [0.5, 0.97, 0.99], "accuracy": 0.99}
    row = line([*repeats(SECONDS, num_ranks=2), *approximate(SECONDS, **longer)], "approximate")
    assert row["accuracy after as many epochs"] == pytest.approx(0.97)


def test_it_is_no_rival_in_the_order_and_does_not_count_as_unequal_training():
    assert [(row["backend"], row["verdict"]) for row in lines(RECORDS, "first")] == [
        ("ddp", "fastest"), ("horovod_tf", "no difference shown"), ("weight_averaging@4", "approximate"),
    ]  # fmt: skip
    assert "weight_averaging" not in " ".join(section(RECORDS, "first").sentences)
    assert "more than rounding explains" not in section(RECORDS, "same").sentences[0]


def test_it_is_compared_also_where_no_run_reached_the_target():
    records = [not_reached(num_ranks=2), not_reached(backend="weight_averaging", num_ranks=2, exact=False)]
    row = line(records, "approximate")
    assert (row["against"], row["seconds per epoch, ratio"], row["epochs to the target"]) == ("ddp", 1.0, None)


def test_more_epochs_are_not_tested_for_and_exact_ones_are_compared_without_it():
    slow = approximate(SECONDS, accuracies=[0.1, 0.2, 0.98], accuracy=0.98, train_seconds=[4.0] * 3, eval_seconds=[0.5] * 3)
    assert [row["verdict"] for row in lines([*EXACT, *slow], "first")] == ["fastest", "no difference shown", "approximate"]


def test_without_an_exact_backend_of_its_size_or_without_any_there_is_no_comparison():
    for records in (EXACT, [*approximate(SECONDS), made(num_ranks=1)]):
        assert "approximate" not in [section.key for section in answered(records).sections]


@pytest.mark.parametrize(
    ("left_out", "end"), [([], "updates."), (["rank 0, epoch 1, step 3: it"], "updates; in 1 of its 7 runs a worker was left out.")]
)
def test_the_mean_staleness_is_over_all_epochs_of_all_runs_and_runs_without_a_worker_are_counted(left_out, end):
    served = approximate(SECONDS, backend="parameter_server", staleness=[{"0": 1, "1": 2}, {"1": 1}])
    served.append(
        made(**{"repeat": 6, **{key: served[0][key] for key in ("backend", "num_ranks", "exact")}}, staleness=[{"3": 8}], left_out=left_out)
    )
    sentence = section([*EXACT, *served], "approximate").sentences[-1]
    assert sentence == f"cnn, weak scaling, 2 ranks: parameter_server is asynchronous; an update has a mean staleness of 1.31 {end}"

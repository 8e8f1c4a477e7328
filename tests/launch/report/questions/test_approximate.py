"""What approximate backends gain and cost beside the fastest exact one."""

import pytest

from tests.support.answers import keys, line, lines, section
from tests.support.made_records import made, not_reached, repeats

SECONDS = [10.0, 11.0, 12.0, 10.5, 11.5, 12.5]
EXACT = [*repeats(SECONDS, num_ranks=2, exact=True), *repeats(SECONDS, backend="horovod_tf", num_ranks=2)]


def approximate(seconds, **changes):
    values = {"backend": "weight_averaging@4", "num_ranks": 2, "exact": False, "accuracy": 0.975, "losses": [3.0, 2.2, 1.0, 0.5]}
    return repeats(seconds, **values | changes)


RECORDS = [*EXACT, *approximate([0.8 * seconds for seconds in SECONDS])]


def test_its_time_stands_beside_its_accuracy():
    row = line(RECORDS, "approximate")
    assert (row["ranks"], row["backend"], row["against"]) == (2, "weight_averaging@4", "ddp")
    assert row["ratio of seconds per epoch"] == pytest.approx(0.8, abs=0.02)
    assert row["loss difference, first 20 steps"] == pytest.approx(0.1)
    assert (row["accuracy after as many epochs"], row["accuracy of the other"]) == (pytest.approx(0.975), pytest.approx(0.98))
    assert (row["epochs to the target"], row["epochs of the other"]) == (2, 2)
    assert section(RECORDS, "approximate").sentences == [
        "cnn, weak scaling, 2 ranks: weight_averaging@4 is approximate; its losses differ by up to 1e-01 in the first 20 steps; an epoch "
        f"takes {row['ratio of seconds per epoch']:.2f} times ddp's seconds; after as many epochs its accuracy is 0.9750, ddp's 0.9800."
    ]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        # With another global batch, losses are not compared.
        (
            [*EXACT, *approximate(SECONDS, backend="parameter_server", data_parallel_degree=1)],
            {"backend": "parameter_server", "loss difference, first 20 steps": None, "accuracy of the other": pytest.approx(0.98)},
        ),
        # Accuracies are of the last epoch that both have trained.
        (
            [*repeats(SECONDS, num_ranks=2), *approximate(SECONDS, accuracies=[0.5, 0.97, 0.99], accuracy=0.99)],
            {"accuracy after as many epochs": pytest.approx(0.97)},
        ),
        (
            [not_reached(num_ranks=2), not_reached(backend="weight_averaging", num_ranks=2, exact=False)],
            {"ratio of seconds per epoch": 1.0, "epochs to the target": None},
        ),
    ],
)
def test_it_is_compared_as_far_as_both_trained_the_same(records, expected):
    assert {"against": "ddp"} | expected == {name: line(records, "approximate")[name] for name in ("against", *expected)}


# The second does not vary as the others do from repeat to repeat.
@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "no difference beyond 5 %"),
        ({"accuracies": [0.1, 0.2, 0.98], "train_seconds": [4.0] * 3, "eval_seconds": [0.5] * 3}, "no difference shown"),
    ],
)
def test_it_is_no_rival_in_the_order_whatever_epochs_it_needs_and_does_not_count_as_unequal_training(changes, verdict):
    records = [*EXACT, *approximate([0.8 * seconds for seconds in SECONDS], **changes)]
    assert [(row["backend"], row["verdict"]) for row in lines(records, "first")] == [
        ("ddp", "fastest"), ("horovod_tf", verdict), ("weight_averaging@4", "approximate"),
    ]  # fmt: skip
    assert "weight_averaging" not in " ".join(section(records, "first").sentences)
    assert "more than rounding explains" not in section(records, "same").sentences[0]


@pytest.mark.parametrize("records", [EXACT, [*approximate(SECONDS), made(num_ranks=1)]])
def test_without_an_exact_backend_of_its_size_or_without_any_there_is_no_comparison(records):
    assert "approximate" not in keys(records)


@pytest.mark.parametrize(
    ("left_out", "end"), [([], "updates."), (["rank 0, epoch 1, step 3: it"], "updates; in 1 of its 7 runs a worker was left out.")]
)
def test_the_mean_staleness_is_over_all_epochs_of_all_runs_and_runs_without_a_worker_are_counted(left_out, end):
    server = {"backend": "parameter_server", "num_ranks": 2, "exact": False}
    served = approximate(SECONDS, staleness=[{"0": 1, "1": 2}, {"1": 1}], **server)
    served.append(made(repeat=6, staleness=[{"3": 8}], left_out=left_out, **server))
    sentence = section([*EXACT, *served], "approximate").sentences[-1]
    assert sentence == f"cnn, weak scaling, 2 ranks: parameter_server is asynchronous; an update has a mean staleness of 1.31 {end}"

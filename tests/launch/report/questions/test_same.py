"""Whether all backends trained the same thing, and what approximate ones gain and cost beside the fastest exact one."""

import pytest

from tests.support.answers import answered, line, lines, section
from tests.support.made_records import ENVIRONMENT, ended, made, not_reached, repeats


def test_equal_training_is_shown_by_digests_and_first_losses():
    losses = [3.0, 2.0 * (1 + 4e-7), 1.1, 0.5]
    records = [made(backend="single"), made(), made(backend="horovod_tf", losses=losses, parameter_digests=["a" * 64, "f" * 64])]
    assert section(records, "same").sentences == [
        "cnn, weak scaling: all backends start from identical parameters. Losses of the first 2 steps agree to 4e-07."
    ]
    assert line(records, "same", backend="ddp")["loss difference, all steps"] == 0.0
    row = line(records, "same", backend="horovod_tf")
    assert row["reference"] == "single"
    assert (row["loss difference, first 2 steps"], row["loss difference, all steps"]) == (pytest.approx(4e-7), pytest.approx(0.1))


def test_buffers_that_differ_between_ranks_are_told():
    records = [made(backend="single"), made(num_ranks=2, buffers_in_sync=False), made(backend="fsdp", num_ranks=2, buffers_in_sync=True)]
    (sentence,) = section(records, "same").sentences
    assert "Buffers, such as statistics of batch norm, differ between the ranks of ddp at 2 ranks: each evaluates with its own." in sentence


def test_every_seed_counts():
    as_single = [made(backend="single", repeat=repeat) for repeat in range(3)]
    of_ddp = [made(repeat=repeat) for repeat in range(3)]
    of_horovod = [
        made(
            backend="horovod_torch", repeat=repeat, losses=[3.0, 2.0 * (1 + difference), 1.1, 0.5], parameter_digests=["a" * 64, final * 64]
        )
        for repeat, (difference, final) in enumerate([(0.0, "c"), (3e-7, "e"), (1e-7, "f")])
    ]
    assert section([*as_single, *of_ddp, *of_horovod], "same").sentences == [
        "cnn, weak scaling: all backends start from identical parameters. Losses of the first 2 steps agree to 3e-07."
    ]


@pytest.mark.parametrize(
    ("second_loss", "precision", "instruction_sets", "sentence"),
    [
        (2.1, "fp32", ["avx2"], "differ by up to 5e-02, more than rounding explains (1e-05)."),
        (2.01, "bf16", ["avx512f"], "differ by up to 5e-03, more than rounding explains (2e-03)."),
        (2.002, "bf16", ["avx512f"], "agree to 1e-03."),
        (2.01, "bf16", ["avx2"], "agree to 5e-03."),
        (2.1, "bf16", ["avx2"], "differ by up to 5e-02, more than rounding explains (1e-02)."),
    ],
)
def test_unequal_training_is_reported(second_loss, precision, instruction_sets, sentence):
    shared = {"settings": {"precision": precision}, "environment": ENVIRONMENT | {"instruction_sets": instruction_sets}}
    of_tensorflow = made(backend="horovod_tf", losses=[3.0, second_loss, 1.0, 0.5], parameter_digests=["f" * 64, "b" * 64], **shared)
    name = "cnn" if precision == "fp32" else f"cnn in {precision}"
    assert section([made(**shared), of_tensorflow], "same").sentences == [
        f"{name}, weak scaling: NOT all backends start from identical parameters. Losses of the first 2 steps {sentence}"
    ]


def test_only_runs_of_one_seed_are_compared():
    records = [made(), made(backend="horovod_tf", repeat=1, losses=[9.0, 9.0], parameter_digests=["f" * 64])]
    row = line(records, "same", backend="horovod_tf")
    assert (row["reference"], row["loss difference, first 2 steps"]) == (None, None)
    assert section(records, "same").sentences == ["cnn, weak scaling: all backends start from identical parameters."]
    # The repeat that both have.
    records = [ended("failed", backend="single"), made(backend="single", repeat=1), made(losses=[9.0, 9.0]), made(repeat=1)]
    row = line(records, "same", backend="ddp")
    assert (row["reference"], row["loss difference, first 2 steps"]) == ("single", 0.0)


def test_resumed_runs_are_not_compared():
    later = {"resumed_after_epochs": 2, "parameter_digests": ["8" * 64, "9" * 64], "losses": [0.4, 0.3]}
    resumed = [not_reached(**later), not_reached(backend="horovod_tf", **later)]
    records = [made(backend="single"), *resumed, made(backend="horovod_tf", repeat=1)]
    assert [row["backend"] for row in lines(records, "same")] == ["single", "horovod_tf"]
    assert section(records, "same").sentences[0].startswith("cnn, weak scaling: all backends start from identical parameters.")
    assert "same" not in {section.key for section in answered([not_reached(**later)]).sections}


@pytest.mark.parametrize(("values", "in_sync"), [([True, True], "yes"), ([True, False], "no"), ([True, None], "yes")])
def test_replicas_are_in_sync_only_where_those_of_no_repeat_differed(values, in_sync):
    failed = {"status": "failed", "error": "it broke"}
    records = [made(repeat=repeat, **({} if value else failed | {"in_sync": value})) for repeat, value in enumerate(values)]
    assert line(records, "same")["ranks in sync"] == in_sync


SECONDS = [10.0, 11.0, 12.0, 10.5, 11.5, 12.5]
EXACT = [*repeats(SECONDS, num_ranks=2, exact=True), *repeats(SECONDS, backend="horovod_tf", num_ranks=2)]


def approximate(seconds, **changes):
    values = {"backend": "weight_averaging@4", "num_ranks": 2, "exact": False, "accuracy": 0.975, "losses": [3.0, 2.2, 1.0, 0.5]}
    return repeats(seconds, **values | changes)


def test_the_time_of_an_approximate_backend_stands_beside_its_accuracy():
    records = [*EXACT, *approximate([0.8 * seconds for seconds in SECONDS])]
    row = line(records, "same", table=1)
    assert (row["ranks"], row["backend"], row["against"]) == (2, "weight_averaging@4", "ddp")
    assert row["ratio of seconds per epoch"] == pytest.approx(0.8, abs=0.02)
    assert (row["accuracy after as many epochs"], row["accuracy of the other"]) == (pytest.approx(0.975), pytest.approx(0.98))
    assert section(records, "same").sentences[1:] == [
        f"cnn, weak scaling, 2 ranks: weight_averaging@4 is approximate; an epoch takes {row['ratio of seconds per epoch']:.2f} times "
        "ddp's seconds; after as many epochs its accuracy is 0.9750, ddp's 0.9800."
    ]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (
            [*EXACT, *approximate(SECONDS, backend="parameter_server", data_parallel_degree=1)],
            {"backend": "parameter_server", "accuracy of the other": pytest.approx(0.98), "mean staleness of an update": None},
        ),
        (
            [*EXACT, *approximate(SECONDS, backend="parameter_server", staleness=[{"0": 1, "1": 2}, {"3": 1}])],
            {"mean staleness of an update": 1.25},
        ),
        # Accuracies are of the last epoch that both have trained.
        (
            [*repeats(SECONDS, num_ranks=2), *approximate(SECONDS, accuracies=[0.5, 0.97, 0.99], accuracy=0.99)],
            {"accuracy after as many epochs": pytest.approx(0.97)},
        ),
        (
            [not_reached(num_ranks=2), not_reached(backend="weight_averaging", num_ranks=2, exact=False)],
            {"ratio of seconds per epoch": 1.0},
        ),
    ],
)
def test_it_is_compared_as_far_as_both_trained_the_same(records, expected):
    assert {"against": "ddp"} | expected == {name: line(records, "same", table=1)[name] for name in ("against", *expected)}


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
    assert len(section(records, "same").tables) == 1

"""Speed-up, efficiency and what is left out of them."""

import pytest

from tests.support.answers import line, lines, section
from tests.support.made_records import ended, made, not_reached

OWN, SINGLE = "speed-up over own 1 rank", "speed-up over its framework's single"
RATE_RATIO, EFFICIENCY = "samples/s over own 1 rank", "efficiency (%)"


def test_speed_ups_are_ratios_of_times_against_the_own_single_rank_and_the_plain_run():
    records = [made(backend="single", seconds=9.0), made(seconds=12.0), made(num_ranks=2, seconds=6.0), made(num_ranks=4, seconds=4.0)]
    assert [(row["backend"], row["ranks"], row[OWN], row[SINGLE]) for row in lines(records, "scaling")] == [
        ("single", 1, 1.0, None), ("ddp", 1, 1.0, "0.75"), ("ddp", 2, 2.0, "1.50"), ("ddp", 4, 3.0, "2.25"),
    ]  # fmt: skip
    row = line(records, "scaling", ranks=4)
    assert (row[RATE_RATIO], row[EFFICIENCY]) == (pytest.approx(3.0), pytest.approx(75.0))


def test_a_speed_up_does_not_credit_a_backend_with_its_framework():
    of_tensorflow = made(backend="horovod_tf", num_ranks=2, seconds=5.0)
    records = [made(backend="single", seconds=10.0), made(num_ranks=2, seconds=8.0), of_tensorflow]
    assert [line(records, "scaling", backend=backend)[SINGLE] for backend in ("ddp", "horovod_tf")] == ["1.25", None]
    records.append(made(backend="single_tf", seconds=9.0))
    assert [line(records, "scaling", backend=backend)[SINGLE] for backend in ("single_tf", "horovod_tf")] == [None, "1.80"]


def test_throughput_has_a_ratio_also_where_no_target_was_reached():
    records = [not_reached(samples_per_second=100.0), not_reached(num_ranks=2, samples_per_second=180.0)]
    row = line(records, "scaling", ranks=2)
    assert (row[RATE_RATIO], row[EFFICIENCY], row[OWN]) == (1.8, 90.0, None)


@pytest.mark.parametrize(
    "single_ranks", [[], [not_reached(), not_reached(backend="single")], [ended("failed"), ended("timeout", backend="single")]]
)
def test_without_a_time_to_compare_with_there_is_no_speed_up(single_ranks):
    row = line([made(num_ranks=2), *single_ranks], "scaling", ranks=2)
    assert (row["time to solution (s)"], row[OWN], row[SINGLE]) == (10.0, None, None)


def test_oversubscribed_entries_are_marked_and_have_no_speed_up():
    shared = {"num_ranks": 8, "seconds": 20.0}
    records = [made(), made(num_ranks=2, seconds=6.0), made(oversubscribed=True, **shared), made(repeat=1, **shared)]
    assert [row["ranks"] for row in lines(records, "scaling")] == [1, 2]
    assert "Oversubscribed, left out: 8 ranks." in section(records, "scaling").sentences[0]
    for key in ("first", "cost"):
        assert [(row["ranks"], row["oversubscribed"]) for row in lines(records, key)] == [(1, None), (2, None), (8, "yes")]


def test_weak_and_strong_scaling_and_workloads_are_never_in_one_table():
    strong = {"scaling": "strong", "workload_digest": "e" * 64}
    records = [made(backend="single"), made(seconds=30.0, **strong), made(seconds=15.0, num_ranks=2, **strong)]
    records.append(made(workload="transformer", workload_digest="e" * 64))
    for key in ("first", "scaling", "cost", "same"):
        titles = [table.title for table in section(records, key).tables][-3:]
        assert titles == ["cnn, strong scaling", "cnn, weak scaling", "transformer, weak scaling"]
    assert [[(row[OWN], row[SINGLE]) for row in lines(records, "scaling", table)] for table in range(3)] == [
        [(1.0, None), (2.0, None)], [(1.0, None)], [(1.0, None)],
    ]  # fmt: skip


def test_the_plain_run_comes_first_then_backends_by_name_and_size():
    order = [("horovod_torch", 1), ("ddp", 10), ("single", 1), ("ddp", 2), ("ddp", 1)]
    records = [made(backend=backend, num_ranks=ranks) for backend, ranks in order]
    expected = [("single", 1), ("ddp", 1), ("ddp", 2), ("ddp", 10), ("horovod_torch", 1)]
    assert [(row["backend"], row["ranks"]) for row in lines(records, "scaling")] == expected


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        (
            [
                *(made(backend=backend) for backend in ("ddp", "horovod_tf")),
                made(num_ranks=4, samples_per_second=300.0),
                made(backend="horovod_tf", num_ranks=4, samples_per_second=380.0),
            ],
            "efficiency at 4 ranks: 75 % (ddp) to 95 % (horovod_tf).",
        ),
        # Of the largest size that completed.
        (
            [made(), made(num_ranks=2, samples_per_second=180.0), ended("failed", num_ranks=4)],
            "efficiency at 2 ranks: 90 % (ddp).",
        ),
        (
            [made(), made(backend="single")],
            "not measured, since no backend ran both at 1 rank and at a larger size without oversubscription.",
        ),
    ],
)
def test_the_range_of_efficiencies_is_given(records, sentence):
    assert section(records, "scaling").sentences == [f"cnn, weak scaling: {sentence}"]

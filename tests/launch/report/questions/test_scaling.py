"""Speed-up, efficiency and what is left out of them."""

import pytest

from tests.support.answers import line, lines, section
from tests.support.made_records import ended, made, not_reached, step_breakdown

TIME, OWN, SINGLE, RATE_RATIO, CEILING, EFFICIENCY = (
    "time to solution (s)",
    "speed-up over own 1 rank",
    "speed-up over single",
    "samples/s over own 1 rank",
    "ceiling without communication",
    "efficiency (%)",
)


def test_speed_ups_are_ratios_of_times_against_the_own_single_rank_and_the_plain_run():
    records = [made(backend="single", seconds=9.0), made(seconds=12.0), made(num_ranks=2, seconds=6.0), made(num_ranks=4, seconds=4.0)]
    assert {(row["backend"], row["ranks"]): (row[OWN], row[SINGLE]) for row in lines(records, "scaling")} == {
        ("single", 1): (1.0, 1.0),
        ("ddp", 1): (1.0, 0.75),
        ("ddp", 2): (2.0, 1.5),
        ("ddp", 4): (3.0, 2.25),
    }
    row = line(records, "scaling", ranks=4)
    assert (row[RATE_RATIO], row[EFFICIENCY]) == (pytest.approx(3.0), pytest.approx(75.0))


def test_throughput_has_a_ratio_also_where_no_target_was_reached():
    records = [not_reached(samples_per_second=100.0), not_reached(num_ranks=2, samples_per_second=180.0)]
    row = line(records, "scaling", ranks=2)
    assert (row[RATE_RATIO], row[EFFICIENCY], row[OWN]) == (1.8, 90.0, None)


@pytest.mark.parametrize(
    "others", [[], [not_reached(), not_reached(backend="single")], [ended("failed"), ended("timeout", backend="single")]]
)
def test_without_a_time_to_compare_with_there_is_no_speed_up(others):
    row = line([made(num_ranks=2), *others], "scaling", ranks=2)
    assert (row[TIME], row[OWN], row[SINGLE]) == (10.0, None, None)


def test_oversubscribed_entries_have_their_own_tables_and_no_speed_up():
    records = [
        made(),
        made(num_ranks=2, seconds=6.0),
        made(num_ranks=8, seconds=20.0, oversubscribed=True),
        made(num_ranks=8, repeat=1, seconds=20.0),
    ]
    assert [row["ranks"] for row in lines(records, "scaling")] == [1, 2]
    assert "Oversubscribed, left out: 8 ranks." in section(records, "scaling").sentences[0]
    for key in ("first", "cost"):
        titles = [table.title for table in section(records, key).tables]
        assert titles[-2:] == ["cnn, weak scaling", "cnn, weak scaling, oversubscribed: not a scaling measurement"]
        assert [row["ranks"] for row in lines(records, key, 0)] == [1, 2]
        assert [row["ranks"] for row in lines(records, key, 1)] == [8]


@pytest.mark.parametrize(
    ("two_ranks", "cores", "remark"),
    [
        ({"seconds": 5.0}, 4, None),
        ({"seconds": 4.0}, 4, "superlinear: samples/s and speed-up above 2"),
        ({"seconds": 4.0, "samples_per_second": 190.0}, 4, "superlinear: speed-up above 2"),
        ({"seconds": 6.0, "samples_per_second": 201.0}, 4, "superlinear: samples/s above 2"),
        ({"seconds": 6.0}, 1, "superlinear: samples/s and speed-up above 1"),
        ({"seconds": 6.0, "num_nodes": 2}, 1, None),
        ({"seconds": 6.0, "settings": {"cores_per_rank": 2}}, 2, "superlinear: samples/s and speed-up above 1"),
        ({"seconds": 6.0, "settings": {"cores_per_rank": 2}}, 1, "superlinear: samples/s and speed-up above 1"),
    ],
)
def test_superlinear_ratios_have_a_remark(two_ranks, cores, remark):
    first, second = made(seconds=10.0, settings=two_ranks.get("settings")), made(num_ranks=2, **two_ranks)
    second["environment"] = second["environment"] | {"num_cores": cores}
    assert line([first, second], "scaling", ranks=2)["remark"] == remark


def test_weak_and_strong_scaling_are_never_in_one_table():
    strong = {"scaling": "strong", "workload_digest": "e" * 64}
    records = [made(backend="single"), made(seconds=30.0, **strong), made(seconds=15.0, num_ranks=2, **strong)]
    for key in ("first", "scaling", "cost", "same"):
        assert [table.title for table in section(records, key).tables][-2:] == ["cnn, strong scaling", "cnn, weak scaling"]
    assert [(row[OWN], row[SINGLE]) for row in lines(records, "scaling")] == [(1.0, None), (2.0, None)]


def test_workloads_are_kept_apart():
    records = [made(backend="single"), made(workload="transformer", workload_digest="e" * 64)]
    assert [row[SINGLE] for table in (0, 1) for row in lines(records, "scaling", table)] == [1.0, None]


def test_the_plain_run_comes_first_then_backends_by_name_and_size():
    order = [("horovod_torch", 1), ("ddp", 10), ("single", 1), ("ddp", 2), ("ddp", 1)]
    records = [made(backend=backend, num_ranks=ranks) for backend, ranks in order]
    expected = [("single", 1), ("ddp", 1), ("ddp", 2), ("ddp", 10), ("horovod_torch", 1)]
    assert [(row["backend"], row["ranks"]) for row in lines(records, "scaling")] == expected


def test_the_range_of_efficiencies_is_given():
    records = [
        made(),
        made(num_ranks=4, samples_per_second=300.0),
        made(backend="horovod_tf"),
        made(backend="horovod_tf", num_ranks=4, samples_per_second=380.0),
    ]
    assert section(records, "scaling").sentences == ["cnn, weak scaling: efficiency at 4 ranks: 75 % (ddp) to 95 % (horovod_tf)."]


def computing(milliseconds, num_ranks=1, **changes):
    """A record whose ranks compute for that long in a step."""
    return made(num_ranks=num_ranks, step_breakdown=step_breakdown(compute=milliseconds, num_ranks=num_ranks), **changes)


# Under strong scaling two ranks that share the work perfectly compute half as long.
@pytest.mark.parametrize(("scaling", "milliseconds", "ceiling"), [("weak", 10.0, 1.6), ("weak", 8.0, 2.0), ("strong", 5.0, 1.6)])
def test_the_ceiling_is_the_ratio_of_samples_per_second_of_compute(scaling, milliseconds, ceiling):
    records = [computing(8.0, scaling=scaling), computing(milliseconds, 2, scaling=scaling, samples_per_second=150.0)]
    assert [row[CEILING] for row in lines(records, "scaling")] == [pytest.approx(1.0), pytest.approx(ceiling)]
    assert section(records, "scaling").sentences == [
        f"cnn, {scaling} scaling: efficiency at 2 ranks: 75 % (ddp); without communication {50 * ceiling:.0f} % (ddp)."
    ]


def test_the_ceiling_is_of_the_mean_over_ranks_and_the_typical_repeat():
    odd = computing(10.0, 2, repeat=1)
    odd["step_breakdown"]["compute_seconds"] = [0.008, 0.012]
    records = [computing(8.0), computing(10.0, 2), odd, computing(40.0, 2, repeat=2)]
    assert line(records, "scaling", ranks=2)[CEILING] == pytest.approx(1.6)


@pytest.mark.parametrize(
    "records",
    [
        [computing(8.0, 2)],
        [computing(8.0, 2), computing(8.0, backend="single")],
        [computing(8.0, 2), made()],
        [computing(8.0, 2), ended("failed")],
        [computing(8.0), made(num_ranks=2)],
    ],
)
def test_without_both_step_breakdowns_there_is_no_ceiling(records):
    assert line(records, "scaling", ranks=2)[CEILING] is None


def test_efficiency_is_of_the_largest_completed_size():
    records = [made(), made(num_ranks=2, samples_per_second=180.0), ended("failed", num_ranks=4)]
    assert "efficiency at 2 ranks: 90 % (ddp)." in section(records, "scaling").sentences[0]


def test_scaling_needs_two_sizes():
    assert "not measured" in section([made(), made(backend="single")], "scaling").sentences[0]

"""The sentences and tables of the report, for made-up records."""

import pytest

from launch.report import entries, summary
from launch.report.entries import Entry
from tests.support.made_records import ended, made, not_reached, repeats, step_breakdown

TIME, OWN, SINGLE = "time to solution (s)", "speed-up over own 1 rank", "speed-up over single"
RATE, RATE_RATIO, EFFICIENCY, MEMORY = "samples/s", "samples/s over own 1 rank", "efficiency (%)", "peak memory per rank (MiB)"


def section(found, key, damaged=()):
    return next(section for section in summary.answer(found, damaged).sections if section.key == key)


def lines(found, key, table=0):
    """The rows of one table of a section, as dicts."""
    chosen = section(found, key).tables[table]
    return [dict(zip([column.name for column in chosen.columns], row, strict=True)) for row in chosen.rows]


def line(found, key, table=0, **wanted):
    """The one row with these values."""
    (one,) = (row for row in lines(found, key, table) if all(row[name] == value for name, value in wanted.items()))
    return one


def test_the_questions_are_in_order():
    assert [section.key for section in summary.answer([made()]).sections] == ["first", "scaling", "cost", "same", "failed"]


def test_the_time_is_the_median_over_the_repeats_with_its_range():
    row = line(repeats([30.0, 10.0, 20.0]), "first")
    assert (row[TIME], row["fastest (s)"], row["slowest (s)"], row["reached"], row[RATE]) == (20.0, 10.0, 30.0, "3 of 3", 50.0)


def test_from_5_repeats_the_time_is_the_trimmed_mean():
    assert line(repeats([1.0, 2.0, 3.0, 10.0, 100.0]), "first")[TIME] == 5.0


@pytest.mark.parametrize(
    ("group", "time", "reached"),
    [
        ([not_reached()], "not reached", "0 of 1 (not reached)"),
        ([ended("failed")], "failed", "0 of 1 (failed)"),
        ([ended("timeout")], "timeout", "0 of 1 (timeout)"),
        ([ended("started")], "started", "0 of 1 (started)"),
        ([made(), ended("failed", repeat=1)], "failed", "1 of 2 (failed)"),
        ([made(), ended("failed", repeat=1), made(repeat=2, seconds=12.0)], 12.0, "2 of 3 (failed)"),
        ([made(), not_reached(repeat=1), ended("failed", repeat=2)], "not reached", "1 of 3 (failed and not reached)"),
        ([made(time_to_solution_seconds=None, resumed_after_epochs=2)], "resumed", "0 of 1 (resumed)"),
    ],
)
def test_one_miss_counts_as_the_slowest_and_an_invalid_entry_has_its_status(group, time, reached):
    row = line(group, "first")
    assert (row[TIME], row["reached"]) == (time, reached)


def test_a_backend_without_a_time_is_last_and_not_compared():
    found = [made(seconds=10.0), ended("failed", backend="horovod_tf"), made(backend="single", seconds=12.0)]
    rows = lines(found, "first")
    assert [row["backend"] for row in rows] == ["ddp", "single", "horovod_tf"]
    assert [row["verdict"] for row in rows] == [None, "none from one run each", None]


# Of records made with these, an epoch takes half of them less half a second: 4.983 s on (geometric) average.
SIX = [10.0, 11.0, 12.0, 10.0, 11.0, 12.0]


def six(seconds, **changes):
    return repeats([seconds] * 6, **changes)


def test_the_fastest_is_compared_with_the_next():
    found = [*repeats(SIX), *repeats([2 * time - 1 for time in SIX], backend="horovod_tf")]
    assert section(found, "first").sentences == [
        "cnn, weak scaling, 1 rank: ddp is fastest, 4.983 s an epoch; 2.00 times as fast as horovod_tf "
        "(95 % interval 2.00 to 2.00, 6 pairs)."
    ]
    assert [row["verdict"] for row in lines(found, "first")] == ["fastest", "slower"]
    assert [row["seconds per epoch"] for row in lines(found, "first")] == pytest.approx([4.983, 9.966], abs=1e-3)


def test_a_backend_that_took_fewer_epochs_by_chance_is_not_faster():
    others = repeats([1.05 * time for time in SIX], backend="horovod_tf")
    others[0] |= {"time_to_solution_seconds": 5.0, "accuracies": [0.98], "train_seconds": [4.75], "eval_seconds": [0.5]}
    found = [*repeats(SIX), *others]
    assert [(row["backend"], row["verdict"]) for row in lines(found, "first")] == [("ddp", "fastest"), ("horovod_tf", "slower")]
    assert [row["epochs"] for row in lines(found, "first")] == pytest.approx([2, 11 / 6])


def test_every_backend_without_a_significant_difference_is_named():
    found = [
        *repeats(SIX), *repeats([11.0, 11.1, 11.2] * 2, backend="horovod_tf"), *repeats([10.5, 11.4, 11.3] * 2, backend="single"),
        *six(40.0, backend="horovod_keras"),
    ]  # fmt: skip
    (sentence,) = section(found, "first").sentences
    assert "ddp is fastest, 4.983 s an epoch; no difference shown from single (1.01 times as fast" in sentence
    assert sentence.endswith(". No difference shown from horovod_tf.")
    assert [row["verdict"] for row in lines(found, "first")] == ["fastest", "no difference shown", "no difference shown", "slower"]


def test_fewer_than_6_repeats_give_numbers_and_no_verdict():
    found = [*repeats([10.0, 11.0, 12.0]), *repeats([39.0, 43.0, 47.0], backend="horovod_tf")]
    (sentence,) = section(found, "first").sentences
    assert sentence.startswith("cnn, weak scaling, 1 rank: ddp takes 4.983 s an epoch, horovod_tf 4.2")
    assert sentence.endswith(" 3 pairs); a verdict takes 6 repeats.")
    assert [row["verdict"] for row in lines(found, "first")] == [None, "none from 3 pairs"]
    assert summary.answer(found).headline == [
        "cnn, weak scaling: 3 repeats give no verdict, 6 do; the lowest time so far is 11.00 s, ddp at 1 rank."
    ]


def test_a_backend_that_needs_more_epochs_is_named_and_is_not_compared_by_epoch():
    more = {"accuracies": [0.5, 0.6, 0.98], "train_seconds": [0.5] * 3, "eval_seconds": [0.5] * 3, "eval_losses": [1.0] * 3}
    found = [*repeats(SIX), *repeats(SIX, backend="single"), *repeats(SIX, backend="horovod_tf", **more)]
    (sentence,) = section(found, "first").sentences
    assert sentence.endswith(" horovod_tf needs more epochs to the target: 3.0 against 2.0 (p = 0.0014).")
    assert line(found, "first", backend="horovod_tf")["verdict"] == "needs more epochs"
    assert line(found, "first", verdict="fastest")["backend"] in ("ddp", "single")


def test_one_run_each_gives_no_interval():
    found = [made(), made(backend="horovod_tf", seconds=12.0)]
    assert "(one run each)" in section(found, "first").sentences[0]
    assert line(found, "first", backend="horovod_tf")["95 % interval"] is None


@pytest.mark.parametrize(("times", "verdict"), [([8.0], "none from 6 runs against 1"), ([8.0, 8.1] * 4, "slower")])
def test_of_unequal_numbers_of_runs_the_pairs_count(times, verdict):
    found = [*repeats(times), *repeats([10.0, 10.1, 10.2] * 2, backend="single")]
    assert line(found, "first", backend="single")["verdict"] == verdict


def test_repeats_of_two_matrices_are_not_pairs():
    found = [*repeats([10.0, 11.0, 12.0]), *repeats([20.0, 22.0, 24.0], backend="horovod_tf", stamp="20260202-000000")]
    assert "3 runs each" in section(found, "first").sentences[0]
    slow, fast = (Entry(name, 1, tuple(run for run in found if run["backend"] == name)) for name in ("horovod_tf", "ddp"))
    assert entries.time_ratio(slow, fast).paired is False
    assert entries.value_ratio(slow, fast, "samples_per_second").paired is False
    assert entries.time_ratio(fast, fast).paired is True


def test_each_size_has_its_own_fastest():
    found = [*repeats(SIX), *six(9.0, backend="single"), *six(6.0, num_ranks=2), *six(5.0, backend="horovod_tf", num_ranks=2)]
    rows = lines(found, "first")
    assert [(row["ranks"], row["backend"]) for row in rows if row["verdict"] == "fastest"] == [(1, "single"), (2, "horovod_tf")]


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ([*six(9.0), *six(5.0, num_ranks=2)], "ddp at 2 ranks reached the target first, in 5.00 s."),
        ([*six(9.0), *six(12.0, num_ranks=2)], "ddp at 1 rank reached the target first, in 9.00 s."),
        ([*six(9.0), *six(9.0, backend="horovod_tf")], "ddp and horovod_tf at 1 rank reached the target first, in 9.00 s."),
        ([not_reached(), ended("failed", num_ranks=2)], "no run reached the target."),
        ([*six(9.0), *six(12.0, num_ranks=8, oversubscribed=True)], "ddp at 1 rank reached the target first, in 9.00 s."),
        (
            [*six(9.0), *six(5.0, num_ranks=8, oversubscribed=True)],
            "ddp at 1 rank reached the target first, in 9.00 s (oversubscribed entries left out).",
        ),
        (six(5.0, num_ranks=8, oversubscribed=True), "ddp at 8 ranks reached the target first, in 5.00 s (oversubscribed)."),
        ([made(seconds=9.0), made(num_ranks=2, seconds=5.0)], "one run gives no verdict, 6 do."),
    ],
)
def test_the_headline_is_one_sentence(found, sentence):
    assert summary.answer(found).headline == [f"cnn, weak scaling: {sentence}"]


def test_the_headline_is_relative_to_the_plain_run():
    found = [*six(10.0, backend="single"), *six(4.0, num_ranks=2)]
    assert "2.50 times as fast as single" in summary.answer(found).headline[0]


def test_a_workload_without_a_target_is_for_throughput_alone():
    found = [
        made(workload="transformer-alcf", num_ranks=ranks, samples_per_second=rate) for ranks, rate in ((1, 10.0), (2, 18.0))
    ]  # fmt: skip
    answer = summary.answer(found)
    assert answer.headline == [
        "transformer-alcf, weak scaling: has no target; it is for throughput alone. Highest throughput: ddp at 2 ranks, 18 samples/s."
    ]
    row = line(found, "first", ranks=2)
    assert (row[TIME], row["reached"], row["accuracy"]) == (None, None, None)
    assert section(found, "first").sentences == []
    assert line(found, "scaling", ranks=2)[RATE_RATIO] == 1.8
    assert section(found, "failed").sentences == ["Nothing: all 2 runs completed."]


def test_speed_ups_are_ratios_of_times_against_the_own_single_rank_and_the_plain_run():
    found = [made(backend="single", seconds=9.0), made(seconds=12.0), made(num_ranks=2, seconds=6.0), made(num_ranks=4, seconds=4.0)]
    assert {(row["backend"], row["ranks"]): (row[OWN], row[SINGLE]) for row in lines(found, "scaling")} == {
        ("single", 1): (1.0, 1.0),
        ("ddp", 1): (1.0, 0.75),
        ("ddp", 2): (2.0, 1.5),
        ("ddp", 4): (3.0, 2.25),
    }
    row = line(found, "scaling", ranks=4)
    assert (row[RATE_RATIO], row[EFFICIENCY]) == (pytest.approx(3.0), pytest.approx(75.0))


def test_throughput_has_a_ratio_also_where_no_target_was_reached():
    found = [not_reached(samples_per_second=100.0), not_reached(num_ranks=2, samples_per_second=180.0)]
    row = line(found, "scaling", ranks=2)
    assert (row[RATE_RATIO], row[EFFICIENCY], row[OWN]) == (1.8, 90.0, None)


@pytest.mark.parametrize(
    "others", [[], [not_reached(), not_reached(backend="single")], [ended("failed"), ended("timeout", backend="single")]]
)
def test_without_a_time_to_compare_with_there_is_no_speed_up(others):
    row = line([made(num_ranks=2), *others], "scaling", ranks=2)
    assert (row[TIME], row[OWN], row[SINGLE]) == (10.0, None, None)


def test_oversubscribed_entries_have_their_own_tables_and_no_speed_up():
    found = [
        made(),
        made(num_ranks=2, seconds=6.0),
        made(num_ranks=8, seconds=20.0, oversubscribed=True),
        made(num_ranks=8, repeat=1, seconds=20.0),
    ]
    assert [row["ranks"] for row in lines(found, "scaling")] == [1, 2]
    assert "Oversubscribed, left out: 8 ranks." in section(found, "scaling").sentences[0]
    for key in ("first", "cost"):
        assert [table.title for table in section(found, key).tables] == [
            "cnn, weak scaling", "cnn, weak scaling, oversubscribed: not a scaling measurement",
        ]  # fmt: skip
        assert [row["ranks"] for row in lines(found, key, 0)] == [1, 2]
        assert [row["ranks"] for row in lines(found, key, 1)] == [8]


@pytest.mark.parametrize(
    ("two_ranks", "cores", "remark"),
    [
        ({"seconds": 5.0}, 4, None),
        ({"seconds": 4.0}, 4, "superlinear: samples/s and speed-up above 2"),
        ({"seconds": 4.0, "samples_per_second": 190.0}, 4, "superlinear: speed-up above 2"),
        ({"seconds": 6.0, "samples_per_second": 201.0}, 4, "superlinear: samples/s above 2"),
        ({"seconds": 6.0}, 1, "superlinear: samples/s and speed-up above 1"),
        ({"seconds": 6.0, "num_nodes": 2}, 1, None),
    ],
)
def test_superlinear_ratios_have_a_remark(two_ranks, cores, remark):
    first, second = made(seconds=10.0), made(num_ranks=2, **two_ranks)
    second["environment"] = second["environment"] | {"num_cores": cores}
    assert line([first, second], "scaling", ranks=2)["remark"] == remark


def test_weak_and_strong_scaling_are_never_in_one_table():
    strong = {"scaling": "strong", "workload_digest": "e" * 64}
    found = [made(backend="single"), made(seconds=30.0, **strong), made(seconds=15.0, num_ranks=2, **strong)]
    for key in ("first", "scaling", "cost", "same"):
        assert [table.title for table in section(found, key).tables] == ["cnn, strong scaling", "cnn, weak scaling"]
    assert [(row[OWN], row[SINGLE]) for row in lines(found, "scaling")] == [(1.0, None), (2.0, None)]


def test_workloads_are_kept_apart():
    found = [made(backend="single"), made(workload="transformer", workload_digest="e" * 64)]
    assert [row[SINGLE] for table in (0, 1) for row in lines(found, "scaling", table)] == [1.0, None]


def test_the_plain_run_comes_first_then_backends_by_name_and_size():
    order = [("horovod_torch", 1), ("ddp", 10), ("single", 1), ("ddp", 2), ("ddp", 1)]
    found = [made(backend=backend, num_ranks=ranks) for backend, ranks in order]
    expected = [("single", 1), ("ddp", 1), ("ddp", 2), ("ddp", 10), ("horovod_torch", 1)]
    assert [(row["backend"], row["ranks"]) for row in lines(found, "scaling")] == expected


def test_the_range_of_efficiencies_is_given():
    found = [
        made(),
        made(num_ranks=4, samples_per_second=300.0),
        made(backend="horovod_tf"),
        made(backend="horovod_tf", num_ranks=4, samples_per_second=380.0),
    ]
    assert section(found, "scaling").sentences == ["cnn, weak scaling: efficiency at 4 ranks: 75 % (ddp) to 95 % (horovod_tf)."]


def test_efficiency_is_of_the_largest_completed_size():
    found = [made(), made(num_ranks=2, samples_per_second=180.0), ended("failed", num_ranks=4)]
    assert "efficiency at 2 ranks: 90 % (ddp)." in section(found, "scaling").sentences[0]


def test_scaling_needs_two_sizes():
    assert "not measured" in section([made(), made(backend="single")], "scaling").sentences[0]


def test_costs_are_typical_values():
    found = [
        made(repeat=repeat, init_seconds=seconds, peak_memory_bytes=memory * 2**20)
        for repeat, seconds, memory in ((0, 1.0, 100), (1, 9.0, 300), (2, 2.0, 150))
    ]
    row = line(found, "cost")
    assert (row["launch (s)"], row["import (s)"], row["init (s)"], row["load (s)"]) == (0.25, 1.0, 2.0, 0.5)
    assert (row["train (s)"], row["evaluate (s)"], row[MEMORY], row["median step (ms)"]) == (8.0, 1.0, 150.0, 2000.0)


def test_the_step_increase_is_for_weak_scaling_without_oversubscription():
    def over(**changes):
        found = [made(step_seconds=[0.1] * 4, **changes), made(num_ranks=2, step_seconds=[0.1, 0.12, 0.12, 0.5], **changes)]
        return lines(found, "cost")[1]["step increase over own 1 rank (ms)"]

    assert over() == pytest.approx(20.0)
    assert over(scaling="strong") is None
    assert over(oversubscribed=True) is None


def test_quantities_without_measurement_are_named():
    sentences = section([made()], "cost").sentences
    assert sentences[-2:] == ["Exposed communication: not measured.", "Energy: not measured."]
    found = [made() | {"energy_joules": 50.0}, made(backend="single")]
    assert section(found, "cost").sentences[-1] == "Exposed communication: not measured."
    assert [row["energy (J)"] for row in lines(found, "cost")] == ["not measured", 50.0]


def test_the_parts_of_a_step_are_typical_over_runs_of_the_mean_over_ranks():
    odd = step_breakdown()
    odd["compute_seconds"] = [0.002, 0.004]
    odd["communication_seconds"] = [0.008, None]
    nothing = {key: [] for key in ("losses", "step_seconds", "train_seconds", "eval_seconds", "accuracies", "eval_losses")}
    nothing |= {"resumed_after_epochs": 2, "time_to_solution_seconds": None}
    each = ({"step_breakdown": step_breakdown()}, {"step_breakdown": odd}, nothing)
    found = [*(made(num_ranks=2, repeat=number, **changes) for number, changes in enumerate(each)), made()]
    (row,) = lines(found, "step")
    assert row["step in training (ms)"] == pytest.approx(2000.0)
    assert [
        row[f"{part} (ms)"] for part in ("step in breakdown", "data wait", "compute", "exposed communication", "communication")
    ] == pytest.approx([10.0, 1.0, 4.5, 3.0, 7.0])
    assert [row[name] for name in ("sent (MB)", "bus bandwidth (MB/s)", "bus bandwidth, plain all-reduce (MB/s)")] == [5.0, 500.0, 1000.0]
    assert line(found, "cost", ranks=2)["exposed communication (ms)"] == pytest.approx(3.0)
    assert line(found, "cost", ranks=1)["exposed communication (ms)"] == "not measured"


@pytest.mark.parametrize(
    ("changes", "milliseconds"),
    [({"train_seconds": [None, 4.0]}, pytest.approx(2000.0)), ({"train_seconds": [None]}, None), ({"step_seconds": []}, None)],
)
def test_the_step_in_training_with_unknown_values(changes, milliseconds):
    assert line([made(num_ranks=2, step_breakdown=step_breakdown(), **changes)], "step")["step in training (ms)"] == milliseconds


def test_exposed_communication_is_given_without_oversubscription():
    found = [
        made(step_breakdown=step_breakdown(exposed=0.0, num_ranks=1)),
        made(num_ranks=2, step_breakdown=step_breakdown()),
        made(backend="horovod_tf", num_ranks=2, step_breakdown=step_breakdown(compute=8.0, exposed=1.0)),
        made(num_ranks=8, oversubscribed=True, step_breakdown=step_breakdown(exposed=90.0)),
    ]
    answer = section(found, "step")
    assert answer.sentences == ["cnn, weak scaling, 2 ranks: exposed communication is 10 % (horovod_tf) to 30 % (ddp) of a step."]
    assert [len(table.rows) for table in answer.tables] == [3, 1]
    assert answer.tables[1].title == "cnn, weak scaling, oversubscribed: not a scaling measurement"


def test_equal_training_is_shown_by_digests_and_first_losses():
    losses = [3.0, 2.0 * (1 + 4e-7), 1.1, 0.5]
    found = [made(backend="single"), made(), made(backend="horovod_tf", losses=losses, parameter_digests=["a" * 64, "f" * 64])]
    assert section(found, "same").sentences == [
        "cnn, weak scaling: all backends start from identical parameters. Losses of the first 2 steps agree to 4e-07. "
        "Bitwise identical final parameters: single and ddp at 1 rank."
    ]
    assert line(found, "same", backends="single, ddp")["loss difference, all steps"] == 0.0
    row = line(found, "same", backends="horovod_tf")
    assert (row["initial parameters"], row["final parameters"], row["reference"]) == ("a" * 8, "f" * 8, "single")
    assert (row["loss difference, first 2 steps"], row["loss difference, all steps"]) == (pytest.approx(4e-7), pytest.approx(0.1))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"losses": [3.0, 2.1, 1.0, 0.5]}, "differ by up to 5e-02, more than rounding explains (1e-06)"),
        ({"parameter_digests": ["f" * 64, "b" * 64]}, "NOT all backends start from identical parameters"),
    ],
)
def test_unequal_training_is_reported(changes, text):
    assert text in section([made(), made(backend="horovod_tf", **changes)], "same").sentences[0]


def test_only_runs_of_one_seed_are_compared():
    found = [made(), made(backend="horovod_tf", repeat=1, losses=[9.0, 9.0], parameter_digests=["f" * 64])]
    row = line(found, "same", backends="horovod_tf")
    assert (row["reference"], row["loss difference, first 2 steps"]) == (None, None)
    assert section(found, "same").sentences == ["cnn, weak scaling: all backends start from identical parameters."]


def test_the_repeat_that_both_have_is_compared():
    found = [ended("failed", backend="single"), made(backend="single", repeat=1), made(losses=[9.0, 9.0]), made(repeat=1)]
    row = line(found, "same", backends="single, ddp")
    assert (row["reference"], row["loss difference, first 2 steps"]) == ("single", 0.0)


def test_resumed_runs_are_not_compared():
    later = {"resumed_after_epochs": 2, "parameter_digests": ["8" * 64, "9" * 64], "losses": [0.4, 0.3]}
    found = [made(backend="single"), not_reached(**later), not_reached(backend="horovod_tf", **later), made(backend="horovod_tf", repeat=1)]
    assert [row["backends"] for row in lines(found, "same")] == ["single", "horovod_tf"]
    assert section(found, "same").sentences[0].startswith("cnn, weak scaling: all backends start from identical parameters.")
    assert section([not_reached(**later)], "same").tables == []


@pytest.mark.parametrize(("values", "in_sync"), [([True, True], "yes"), ([True, False], "no"), ([True, None], "yes")])
def test_replicas_are_in_sync_only_where_those_of_no_repeat_differed(values, in_sync):
    found = [
        made(repeat=repeat) if value else made(repeat=repeat, in_sync=value, status="failed", error="it broke")
        for repeat, value in enumerate(values)
    ]
    assert line(found, "same")["ranks in sync"] == in_sync


def test_every_unsuccessful_run_is_listed_with_its_reason():
    found = [
        made(), ended("failed", num_ranks=2), ended("timeout", num_ranks=3), ended("started", num_ranks=4), not_reached(num_ranks=5),
        made(num_ranks=6, time_to_solution_seconds=None, resumed_after_epochs=2),
        not_reached(num_ranks=7, samples_per_second=None, losses=[], resumed_after_epochs=2) | {"accuracy": None},
    ]  # fmt: skip
    assert [(row["ranks"], row["status"], row["reason"]) for row in lines(found, "failed")] == [
        (2, "failed", "it broke"),
        (3, "timed out", "it broke"),
        (4, "unfinished", "still running, or killed before its record was complete"),
        (5, "target not reached", "accuracy 0.9000 after 2 epochs; the target is 0.96"),
        (6, "no time to solution", "resumed from a checkpoint after 2 epochs"),
        (7, "target not reached", "resumed from a checkpoint after 2 epochs, with no epoch left to train"),
    ]
    assert section(found, "failed").sentences == [
        "Of 7 files: 1 failed, 1 timed out, 1 unfinished, 2 target not reached, 1 no time to solution."
    ]


@pytest.mark.parametrize(
    ("num_runs", "note"),
    [
        (1, "have no interval"),
        (3, "at most 75 % of the time"),
        (4, "at most 88 % of the time"),
        (5, "at most 94 % of the time"),
        (6, None),
    ],
)
def test_the_notes_give_the_coverage_of_few_repeats(num_runs, note):
    notes = summary.answer(repeats([10.0] * num_runs)).notes
    assert note in notes[0] if note else notes == []


def test_entries_with_one_run_and_with_few_runs_have_two_notes():
    single, few = summary.answer([*repeats([10.0, 10.1, 10.2]), made(backend="single"), *repeats([9.0] * 4, backend="horovod_tf")]).notes
    assert "have no interval" in single
    assert "A bootstrap interval, as of a speed-up, from 3 runs" in few


def test_the_notes_name_differences_of_the_environment():
    second = made(num_ranks=2)
    second["environment"] = second["environment"] | {"packages": {"torch": "2.14.0"}, "git_commit": "1" * 40}
    notes = summary.answer([made(), second]).notes
    assert "cnn, weak scaling: records differ in torch: 2.13.0, 2.14.0." in notes
    assert "cnn, weak scaling: records differ in commit: 00000000, 11111111." in notes


def test_the_notes_name_other_launchers_libraries_and_cores():
    first, second, third = (made(num_ranks=ranks) for ranks in (1, 2, 3))
    second["launcher"] = "torchrun"
    for record, mpi, cores in ((second, "MPICH  4.3", 4), (third, "Open MPI 5", 64)):
        record["environment"] = record["environment"] | {"mpi": mpi, "num_cores": cores}
    notes = summary.answer([first, second, third]).notes
    assert [note for note in notes if "differ" in note] == [
        "cnn, weak scaling: records differ in launcher: mpich, torchrun.",
        "cnn, weak scaling: records differ in MPI: MPICH 4.3, Open MPI 5.",
        "cnn, weak scaling: records differ in cores: 4, 64.",
    ]


KINDS = {
    "control": {"num_calls": 806, "size_bytes": 16120, "seconds": 6.66},
    "payload": {"num_calls": 212, "size_bytes": 326e6, "seconds": 1.61},
}  # fmt: skip


def traced(kinds, bandwidth=None, **changes):
    rank_0 = {"communication_seconds": 8.28, "kinds": kinds, "payload_bytes_per_second": bandwidth}
    return made(num_ranks=2, settings={"trace": "mpi"}, mpi_profile={"ranks": {"0": rank_0}, "problems": []}, **changes)


@pytest.mark.parametrize(
    ("kinds", "bandwidth", "end", "row"),
    [
        (
            KINDS, 202e6, "6.66 s in control (806 calls of 20 bytes on average), 1.61 s in payload (326 MB at 202 MB/s).",
            (806, 6.66, 212, 326.0, 1.61, 202.0),
        ),
        (KINDS | {"payload": dict.fromkeys(KINDS["payload"], 0)}, None, ", no payload.", (806, 6.66, 0, 0.0, 0, None)),
        (None, None, "does not separate control from payload.", (None,) * 6),
    ],
)  # fmt: skip
def test_control_and_payload_of_traced_runs(kinds, bandwidth, end, row):
    found = summary.answer([made(num_ranks=2), traced(kinds, bandwidth, stamp="20260102-000000")])
    (section,) = [one for one in found.sections if one.key == "where"]
    assert section.sentences[0].startswith("cnn, ddp at 2 ranks: rank 0 spent 8.28 s in MPI")
    assert section.sentences[0].endswith(end)
    assert section.tables[0].rows == [("cnn", "ddp", 2, 8.28, *row)]


def test_without_traced_runs_there_is_no_section_on_mpi():
    assert "where" not in [section.key for section in summary.answer([made()]).sections]

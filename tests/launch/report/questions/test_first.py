"""Which backend is fastest: times, ratios, verdicts and the headline."""

import pytest

from launch.report import statistics
from launch.report.entries import Entry, epoch_ratio, value_ratio
from tests.support.answers import answered, line, lines, section
from tests.support.made_records import ended, made, not_reached, repeats, typed

TIME, RATE = "time to solution (s)", "samples/s"
# Of records made with these, an epoch takes half of them less half a second: 4.983 s on (geometric) average.
SIX = [10.0, 11.0, 12.0, 10.0, 11.0, 12.0]


def six(seconds, **changes):
    return repeats([seconds] * 6, **changes)


def test_the_time_is_the_trimmed_mean_of_the_repeats():
    row = line(repeats([30.0, 10.0, 20.0]), "first")
    assert (row[TIME], row["reached"], row[RATE]) == (20.0, "3/3", 50.0)


@pytest.mark.parametrize(
    ("group", "time", "reached"),
    [
        ([not_reached()], "not reached", "0/1 (not reached)"),
        ([ended("failed")], "failed", "0/1 (failed)"),
        ([ended("timeout")], "timeout", "0/1 (timeout)"),
        ([ended("started")], "started", "0/1 (started)"),
        ([made(), ended("failed", repeat=1)], "failed", "1/2 (failed)"),
        ([made(), ended("failed", repeat=1), made(repeat=2, seconds=12.0)], 12.0, "2/3 (failed)"),
        ([made(), not_reached(repeat=1), ended("failed", repeat=2)], "not reached", "1/3 (failed and not reached)"),
        ([made(time_to_solution_seconds=None, resumed_after_epochs=2)], "resumed", "0/1 (resumed)"),
    ],
)
def test_one_miss_counts_as_the_slowest_and_an_invalid_entry_has_its_status(group, time, reached):
    row = line(group, "first")
    assert (row[TIME], row["reached"]) == (time, reached)


def of_fewer_epochs():
    records = repeats([1.05 * time for time in SIX], backend="horovod_tf")
    records[0] |= {"time_to_solution_seconds": 5.0, "accuracies": [0.98], "train_seconds": [4.75], "eval_seconds": [0.5]}
    return records


@pytest.mark.parametrize(
    ("records", "verdicts", "sentence"),
    [
        (
            [*repeats(SIX), *repeats([2 * time - 1 for time in SIX], backend="horovod_tf")],
            {"ddp": "fastest", "horovod_tf": "slower"},
            "ddp reached the target first, in 11.00 s. horovod_tf's epochs take 100 % (100 to 100) longer.",
        ),
        (
            [
                *repeats(SIX),
                *repeats([11.0, 11.1, 11.2] * 2, backend="horovod_tf"),
                *repeats([10.5, 11.4, 11.3] * 2, backend="single"),
                *six(40.0, backend="horovod_keras"),
            ],
            {"ddp": "fastest", "single": "no difference shown", "horovod_tf": "no difference shown", "horovod_keras": "slower"},
            "ddp reached the target first, in 11.00 s. No difference is shown from single and horovod_tf. horovod_keras's epochs …longer.",
        ),
        (
            [*repeats([10.0, 11.0, 12.0]), *repeats([39.0, 43.0, 47.0], backend="horovod_tf")],
            {"ddp": None, "horovod_tf": "none from 3 pairs"},
            "ddp reached the target first, in 11.00 s. horovod_tf's epochs take 320 % longer.",
        ),
        (
            [made(seconds=10.0), ended("failed", backend="horovod_tf"), made(backend="single", seconds=12.0)],
            {"ddp": None, "single": "none from one run each", "horovod_tf": None},
            "ddp reached the target first, in 10.00 s. single's epochs take 22 % longer. Without a time: horovod_tf (failed).",
        ),
        # That it took fewer epochs once, by chance, does not make a backend fast.
        ([*repeats(SIX), *of_fewer_epochs()], {"ddp": "fastest", "horovod_tf": "slower"}, "ddp reached …longer."),
        (
            [*repeats(SIX), *repeats(SIX, backend="single"), *repeats([1.01 * time for time in SIX], backend="horovod_tf")],
            {"single": "fastest", "ddp": "no difference beyond 5 %", "horovod_tf": "slower"},
            "single reached the target first, in 11.00 s. No difference is shown from ddp. horovod_tf's epochs take 1 % (1 to 1) longer.",
        ),
        ([*repeats([8.0]), *six(10.0, backend="single")], {"ddp": None, "single": "none from 6 runs against 1"}, "ddp reached …longer."),
        # The shorter epochs of one backend, of which it needs more, do not make it reach the target first.
        (
            [*repeats(SIX), *six(22.0, backend="horovod_tf", train_seconds=[1.0, 1.0])],
            {"horovod_tf": "fastest", "ddp": "slower"},
            "ddp reached the target first, in 11.00 s. By seconds per epoch horovod_tf is fastest. ddp's epochs take 232 % …longer.",
        ),
        (
            [*six(9.0), *six(5.0, backend="fp16", exact=False)],
            {"ddp": "fastest", "fp16": "approximate"},
            "ddp reached the target first, in 9.00 s.",
        ),
        (
            [made(seconds=5.0, backend="fp16", exact=False)],
            {"fp16": "approximate"},
            "fp16 reached the target first, in 5.00 s (approximate).",
        ),
        ([not_reached()], {"ddp": None}, "no backend reached the target: ddp (not reached (0.9), 4.50 s an epoch)."),
    ],
)
def test_backends_of_a_size_are_ordered_by_seconds_per_epoch_with_verdicts(records, verdicts, sentence):
    assert [(row["backend"], row["verdict"]) for row in lines(records, "first")] == list(verdicts.items())
    beginning, _, end = f"cnn, weak scaling, 1 rank: {sentence}".partition("…")
    (answer,) = section(records, "first").sentences
    assert answer.startswith(beginning)
    assert answer.endswith(end)


def test_the_columns_of_epochs_and_transports():
    records = [*repeats(SIX, transport="gloo"), *of_fewer_epochs()]
    first, second = lines(records, "first")
    assert (first["epochs"], first["seconds per epoch"], first["transport"]) == (2, pytest.approx(4.983, abs=1e-3), "gloo")
    assert (second["epochs"], second["transport"]) == (pytest.approx(11 / 6), None)
    assert line([made(), made(backend="horovod_tf", seconds=12.0)], "first", backend="horovod_tf")["95 % interval"] is None


def test_repeats_of_two_matrices_are_not_pairs():
    records = [*repeats([10.0, 11.0, 12.0]), *repeats([20.0, 22.0, 24.0], backend="horovod_tf", stamp="20260202-000000")]
    slow, fast = (Entry(name, 1, typed(record for record in records if record["backend"] == name)) for name in ("horovod_tf", "ddp"))
    assert value_ratio(slow, fast, "valid_time_seconds").paired is False
    assert value_ratio(slow, fast, "samples_per_second").paired is False
    assert value_ratio(fast, fast, "valid_time_seconds").paired is True


def test_intervals_of_the_backends_of_a_size_hold_for_all_of_their_pairs_together():
    seconds_of = {"ddp": SIX, "single": [13.0, 14.0, 15.0, 13.5, 14.0, 14.5], "horovod_tf": [12.0, 15.0, 13.0, 14.0, 12.5, 15.0]}
    compared = [Entry(name, 1, typed(repeats(seconds, backend=name))) for name, seconds in seconds_of.items()]
    by_epoch = [list(entry.values("epoch_seconds").values()) for entry in compared]
    assert epoch_ratio(compared[1], compared[0], compared) == statistics.ratio(by_epoch[1], by_epoch[0], True, by_epoch[2:], 3)


def test_each_size_has_its_own_fastest():
    records = [*repeats(SIX), *six(9.0, backend="single"), *six(6.0, num_ranks=2), *six(5.0, backend="horovod_tf", num_ranks=2)]
    rows = lines(records, "first")
    assert [(row["ranks"], row["backend"]) for row in rows if row["verdict"] == "fastest"] == [(1, "single"), (2, "horovod_tf")]


@pytest.mark.parametrize(
    ("records", "at"),
    [
        ([*six(9.0), *six(12.0, num_ranks=2)], "2 ranks: ddp"),
        ([*six(9.0), ended("failed", num_ranks=2)], "1 rank: ddp"),
        ([*six(9.0), *six(5.0, num_ranks=8, oversubscribed=True)], "1 rank: ddp"),
        (six(5.0, num_ranks=8, oversubscribed=True), "8 ranks: ddp"),
        ([not_reached(), ended("failed", num_ranks=2)], "2 ranks: no backend"),
    ],
)
def test_the_sentence_is_of_the_largest_size_with_a_value_and_with_cores_if_any_has(records, at):
    (sentence,) = section(records, "first").sentences
    assert sentence.startswith(f"cnn, weak scaling, {at} reached the target")


def test_with_start_up_another_backend_may_be_first():
    records = [*six(9.0, import_seconds=5.0), *six(10.0, backend="horovod_torch"), *six(11.0, backend="horovod_tf", launch_seconds=None)]
    assert section(records, "first").sentences[0].endswith(" With start-up horovod_torch is first, in 13.25 s.")
    assert [row["with start-up (s)"] for row in lines(records, "first")] == [16.25, 13.25, None]
    assert "start-up" not in section(six(9.0), "first").sentences[0]


def test_a_workload_without_a_target_is_ranked_by_seconds_per_epoch_and_has_its_throughput():
    records = [
        run for backend, seconds, rate in (("ddp", 10.0, 18.0), ("fsdp", 8.0, 24.0))
        for run in six(seconds, backend=backend, workload="resnet50", samples_per_second=rate)
    ]  # fmt: skip
    fsdp, ddp = lines(records, "first")
    assert (ddp[TIME], ddp["reached"], ddp["accuracy"], ddp["verdict"], ddp[RATE]) == (None, None, None, "slower", 18.0)
    assert fsdp["verdict"] == "fastest"
    (sentence,) = section(records, "first").sentences
    assert sentence == (
        "resnet50, weak scaling, 1 rank: fsdp has the highest throughput, 24 samples a second. ddp's epochs take 33 % (33 to 33) longer."
    )
    assert section(records, "failed").sentences == ["Nothing: all 12 runs completed."]
    assert answered(records).answer.sentences[0].startswith("resnet50, 1 rank: fsdp has the highest throughput")


def test_of_a_pair_the_epochs_count_that_both_trained():
    results = {"accuracies": [0.5, 0.7, 0.98], "eval_losses": [1.0] * 3}
    longer = [
        made(backend="single", repeat=repeat, train_seconds=[1.0, 2.0, 60.0], eval_seconds=[0.0] * 3, **results) for repeat in range(6)
    ]
    shorter = [made(repeat=repeat, train_seconds=[2.0, 4.0], eval_seconds=[0.0] * 2) for repeat in range(6)]
    slow, fast = (Entry(name, 1, typed(records)) for name, records in (("ddp", shorter), ("single", longer)))
    assert epoch_ratio(slow, fast, [slow, fast]).value == pytest.approx(2.0)


def test_who_trains_with_a_smaller_global_batch_is_not_compared_under_weak_scaling_only():
    data_parallel = [*six(10.0, num_ranks=2), *six(12.0, num_ranks=2, backend="horovod_tf")]
    for scaling, verdicts in (("weak", ["fastest", "slower", "smaller global batch"]), ("strong", ["slower", "slower", "fastest"])):
        records = [
            record | {"scaling": scaling} for record in [*data_parallel, *six(8.0, num_ranks=2, backend="pipeline", data_parallel_degree=1)]
        ]
        rows = {row["backend"]: row["verdict"] for row in lines(records, "first")}
        assert [rows[name] for name in ("ddp", "horovod_tf", "pipeline")] == verdicts
        assert ("pipeline" in section(records, "first").sentences[0]) == (scaling == "strong")

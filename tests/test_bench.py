"""The benchmarks' pure parts."""

import json

import numpy as np
import pytest

from common.data import sharding
from launch.forecast.scaling.measured import Size
from launch.forecast.scaling.model import Exchange
from launch.forecast.scaling.stragglers import Slowest
from tests.bench import detect, forecast, precision, shared, targets, trace_overhead
from tests.bench.targets import CORRECT, Choice, Curve
from tests.launch.forecast.scaling.test_forecasts import record
from tests.support import small_data
from tests.support.made_records import made, typed
from tests.support.mistakes import expect_refused
from tests.support.running import BIN, completed


def test_what_is_compared_takes_turns_in_alternating_order():
    order = []

    def measure(subject, number):
        order.append(subject)
        return subject, number

    assert shared.in_turns(measure, {"first": "A", "second": "B"}, 3) == {
        "first": [("A", 0), ("A", 1), ("A", 2)], "second": [("B", 0), ("B", 1), ("B", 2)],
    }  # fmt: skip
    assert "".join(order) == "ABBAAB"


def test_ratios_of_rounds_have_a_median_with_their_range_or_their_quartiles():
    ratios = shared.ratios([2.0, 1.0, 6.0, 4.0, 5.0], [2.0] * 5)
    assert shared.with_range(ratios) == "2.00 (0.50 to 3.00)"
    assert shared.with_quartiles(ratios) == "2.000 (1.000 to 2.500)"


def test_overhead_is_the_median_of_the_differences_within_rounds():
    nanoseconds = {"without": {"MPI_Test": [10.0, 30.0, 20.0]}, "counting": {"MPI_Test": [60.0, 95.0, 60.0]}}
    assert trace_overhead.overheads(nanoseconds, "counting") == {"MPI_Test": 50.0}


def test_a_planted_slow_down_is_counted_by_matrix_and_number_of_repeats():
    def of_matrix(day, copy_seconds):
        seconds_of = {detect.PLAIN: 10.0, detect.COPY: copy_seconds, detect.SLOWER: 10.5}
        return [
            made(backend, 2, repeat, seconds * (1 + 0.001 * ((repeat * shift) % 3)), stamp=f"2026010{day}-000000")
            for shift, (backend, seconds) in enumerate(seconds_of.items()) for repeat in range(8)
        ]  # fmt: skip

    records = typed([*of_matrix(1, 10.0), *of_matrix(2, 10.0), *of_matrix(3, 10.4)])
    assert detect.verdicts(records, 6) == ([False, False, True], [True] * 3, [False] * 3)
    assert detect.verdicts(records, 5)[:2] == ([False] * 3, [False] * 3)
    assert detect.verdicts(records[:48], 8).all_hold == [True, True]
    assert detect.rate([True] * 9 + [False]) == "9 of 10 (0.55 to 1.00)"


@pytest.mark.matrix
def test_counting_a_call_costs_less_than_200_ns():
    nanoseconds = trace_overhead.measure(num_calls=300_000, num_rounds=5)
    for routine, without in nanoseconds["without"].items():
        # The least of each: what else runs on this machine only adds.
        assert 0 < min(nanoseconds["counting"][routine]) - min(without) < trace_overhead.LIMIT_NANOSECONDS
        assert min(nanoseconds["events"][routine]) - min(without) < 2 * trace_overhead.LIMIT_NANOSECONDS


def test_steps_are_measured_in_both_precisions():
    seconds = precision.step_seconds("transformer", 2)
    assert [(name, len(of_rounds), min(of_rounds) > 0) for name, of_rounds in seconds.items()] == [("fp32", 2, True), ("bf16", 2, True)]


@pytest.mark.parametrize(
    ("by_size", "expected"),
    [({1: [3, 4]}, 1.0), ({1: [3, 3], 2: [3, 6]}, 1.5), ({1: [4], 2: [2], 4: [5]}, 2.5), ({1: [3], 2: [4, None]}, None)],
)
def test_growth_is_the_largest_ratio_of_mean_epochs_from_one_size_to_the_next(by_size, expected):
    assert targets.growth(by_size) == expected


def curves(learning_rate, by_size, fault=CORRECT):
    """Runs that meet 0.5 at the first number of epochs of their size and 0.6 at the second; None: not at all."""
    runs = []
    for size, (to_half, to_more) in by_size.items():
        accuracies = [0.1] * 9
        for first, accuracy in ((to_half, 0.5), (to_more, 0.6)):
            if first:
                accuracies[first - 1 :] = [accuracy] * (10 - first)
        runs.append(Curve(learning_rate, fault, size, 1, tuple(accuracies)))
    return runs


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        # Both targets are met: the higher one.
        (curves(0.1, {1: (2, 3), 2: (3, 5)}), [(0.1, 0.6), (0.1, 0.5)]),
        # A size misses the higher target.
        (curves(0.1, {1: (2, 3), 2: (3, None)}), [(0.1, 0.5)]),
        # More than twice the epochs.
        (curves(0.1, {1: (2, 3), 2: (4, 7)}), [(0.1, 0.5)]),
        # A broken run meets the higher target only at the first learning rate.
        (
            curves(0.1, {1: (2, 3), 2: (3, 5)}) + curves(0.1, {2: (4, 6)}, "summed")
            + curves(0.2, {1: (2, 3), 2: (3, 6)}) + curves(0.2, {2: (4, None)}, "summed"),
            [(0.2, 0.6), (0.1, 0.6), (0.1, 0.5), (0.2, 0.5)],
        ),
        # Of equals, the one of fewer epochs.
        (curves(0.1, {1: (4, 5)}) + curves(0.2, {1: (3, 4)}), [(0.2, 0.6), (0.1, 0.6), (0.2, 0.5), (0.1, 0.5)]),
        (curves(0.1, {1: (None, None)}), []),
    ],
)  # fmt: skip
def test_a_learning_rate_and_a_target_are_chosen_that_correct_runs_reach_and_broken_ones_do_not(runs, expected):
    assert [(choice.learning_rate, choice.target) for choice in targets.choices(runs, (0.5, 0.6))] == expected


def test_a_choice_says_how_many_epochs_it_takes_and_which_broken_runs_reach_it():
    runs = curves(0.1, {1: (2, 4), 2: (3, 6)}) + curves(0.1, {2: (3, None), 4: (None, None)}, "one shard")
    assert targets.choices(runs, (0.5, 0.6)) == [Choice(0.1, 0.6, 1.5, 6, 0, 2), Choice(0.1, 0.5, 1.5, 3, 1, 2)]


@pytest.mark.parametrize(
    ("epochs", "text"), [([3], "3"), ([3, 3], "3"), ([4, 3], "3-4"), ([4, None, 3], "3-4 (2 of 3)"), ([None, None], "none")]
)
def test_the_epochs_of_a_cell_are_a_range_and_how_many_reached(epochs, text):
    assert targets.cell(epochs) == text


def test_a_broken_run_has_the_samples_of_the_first_rank_or_the_sum_of_the_gradients():
    arguments = (20, 8, "drop", 1, 0, 0, 1, 1)
    indices, weights = targets.one_shard(4)(*arguments)
    first_indices, first_weights = sharding.training_shard(20, 8, "drop", 1, 0, 0, 4, 1)
    np.testing.assert_array_equal(indices, first_indices)
    np.testing.assert_array_equal(weights, first_weights)
    indices, weights = targets.summed(4)(*arguments)
    mean_indices, mean_weights = sharding.training_shard(*arguments)
    np.testing.assert_array_equal(indices, mean_indices)
    np.testing.assert_array_equal(weights, 4 * mean_weights)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("transformer-alcf",), "has no target"),
        (("cnn", "--targets", "1.5"), "--target is 1.5"),
        (("cnn", "--learning-rates", "0"), "--learning-rate is 0"),
        (("cnn", "--sizes", "0"), "--sizes"),
        (("cnn", "--settings=--epochs 0"), "--epochs is 0"),
    ],
)
def test_invalid_arguments_of_a_search_are_refused_in_one_line_before_anything_is_trained(arguments, message):
    expect_refused(message, "tests.bench.targets", *arguments)


@pytest.mark.matrix
def test_a_search_trains_every_size_and_fault_and_says_what_to_choose(tmp_path):
    data = small_data.write_digits(tmp_path / "mnist", 64)
    done = completed(
        BIN / "python", "-m", "tests.bench.targets", "cnn", "--sizes", "1", "2", "--seeds", "2", "--fault-seeds", "1",
         "--targets", "0.01", "0.999", f"--settings={' '.join(data[2:])} --batch-size 8 --epochs 1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| 0")]
    assert [(row[1], row[2]) for row in rows] == [("correct", "1"), ("correct", "2"), ("one shard", "2"), ("summed", "2")]
    assert "target 0.01: every correct run reaches it" in done.stdout
    assert done.stderr.count(" min left") == 6


def test_a_forecast_over_a_link_takes_the_records_that_are_kept(tmp_path):
    for rate in ("none", "1gbit", "200mbit"):
        (tmp_path / f"cnn-ddp-{rate}.json").write_text(json.dumps(record(2, num_nodes=2)))
    fitted, forecasted = forecast.rows(tmp_path, None, "ddp", "cnn", ["200mbit"])
    assert fitted[:3] == ("ddp", "cnn", "1gbit")
    assert fitted[5].endswith(" % (fitted)")
    # The records are of a fast link: over a slow one the gradients would take 4 MB of 25 MB/s longer.
    assert float(forecasted[3]) > float(fitted[3]) > float(fitted[4])


GIGABIT = 125e6
# A byte takes so long through the library over a fast link, and over one of a gigabit, where the library is slower than the link.
OVER_FAST, OVER_SLOW = 1e-9, 1.2e-8
COMPUTE, REST, NUM_BYTES, ALPHA = 0.020, 0.002, 4.8e6, 2e-4


def seconds(size_bytes, bytes_per_second):
    library = OVER_SLOW if bytes_per_second <= GIGABIT else OVER_FAST
    return 2 * ALPHA + size_bytes * max(library, forecast.FRAMES / bytes_per_second)


def size(bytes_per_second):
    """Two ranks on two nodes, who exchange all gradients after their backward pass."""
    plain = tuple((float(num), seconds(num, bytes_per_second)) for num in (2**10, 2**15, 2**20, NUM_BYTES))
    step = COMPUTE + seconds(NUM_BYTES, bytes_per_second) + REST
    exchanges = (Exchange(1.0, NUM_BYTES, "all_reduce"),)
    return Size(2, 2, step, COMPUTE, 0.0, 0.0, 0.0, 1000, 32, plain, exchanges, False, Slowest(np.ones(30), 2))


@pytest.mark.parametrize("bytes_per_second", [25e6, GIGABIT, 1e12])
def test_the_slow_link_and_the_fast_one_tell_of_others(bytes_per_second):
    fast, slow = size(1e12), size(GIGABIT)
    model = forecast.fit(fast, slow, GIGABIT, bytes_per_second, ("ring",))
    assert model.step_seconds(2) == pytest.approx(COMPUTE + seconds(NUM_BYTES, bytes_per_second) + REST)

"""The search of a backend's best, as a function from its runs to the next one, and what its table says of them."""

import math

import pytest

from launch.matrix import gain_of
from launch.run.best import search, table
from launch.run.best.search import Cell, Measured, Trial

CELL = Cell(
    default_batch=16, settings=("cap=1", "view=True"), limit_bytes=8e9, state_bytes=1e9, num_samples=100_000, batch_ratio=2,
    num_pairs=0, has_target=False,
)  # fmt: skip


def searched(speed_of, cell=CELL, memory_of=lambda _: None):
    """All runs of a search: their throughput by batch size and setting, and their memory by batch size."""
    runs = {}
    while trial := search.next_trial(runs, cell):
        speed = speed_of(trial.batch_size, trial.setting)
        runs[trial] = Measured(speed, memory_of(trial.batch_size))
        assert len(runs) < 100
    return runs


def described(runs):
    return [(trial.batch_size, trial.setting) for trial in runs if trial.purpose == "search"]


def saturating(batch_size, setting):
    """Throughput that a batch of 64 no longer raises by 2 %, and one setting does."""
    return {16: 100.0, 32: 150.0, 64: 152.0}[batch_size] * {"none": 1, "cap=1": 0.9, "view=True": 1.1}[setting]


def test_the_batch_doubles_until_it_gains_nothing_and_then_each_setting_is_tried_at_the_fastest():
    runs = searched(saturating)
    assert described(runs) == [(16, "none"), (32, "none"), (64, "none"), (64, "cap=1"), (64, "view=True")]
    assert search.chosen(runs) == Trial(64, "view=True")
    assert search.end_of_batches(runs, CELL) == "a batch of 64 gained no 2 %"


def test_a_slower_larger_batch_is_not_chosen():
    runs = searched(lambda batch_size, _: {16: 100.0, 32: 90.0}[batch_size])
    assert described(runs) == [(16, "none"), (32, "none"), (16, "cap=1"), (16, "view=True")]
    assert search.chosen(runs) == Trial(16)


@pytest.mark.parametrize(
    ("num_samples", "largest"),
    # Four steps of twice the batch.
    [(100_000, 8192), (16 * 2 * 4, 16), (2 * 16 * 2 * 4 - 1, 16), (2 * 16 * 2 * 4, 32)],
)
def test_an_epoch_has_at_least_four_steps(num_samples, largest):
    cell = CELL._replace(num_samples=num_samples, settings=())
    runs = searched(lambda batch_size, _: float(batch_size), cell)
    assert max(trial.batch_size for trial in runs) == largest
    assert search.end_of_batches(runs, cell) == f"an epoch has {num_samples:,} samples"


@pytest.mark.parametrize(
    ("bytes_by_batch", "state_bytes", "expected"),
    [
        ([3e9], 1e9, 5e9), ([3e9, 4e9], 1e9, 6e9), ([3e9, 4e9, 6e9], 1e9, 10e9), ([3e9, 2e9], 1e9, 2e9), ([None], 1e9, None),
        ([None, 3e9], 1e9, 5e9),
    ],
)  # fmt: skip
def test_the_memory_of_twice_the_batch_follows_from_the_last_two(bytes_by_batch, state_bytes, expected):
    assert search.expected_bytes(bytes_by_batch, state_bytes) == expected


def test_a_batch_that_would_not_fit_is_not_tried():
    # 5 GB at 64 and 9 GB at 128.
    runs = searched(lambda batch_size, _: float(batch_size), CELL._replace(settings=()), lambda batch_size: 1e9 + batch_size * 62.5e6)
    assert described(runs) == [(16, "none"), (32, "none"), (64, "none")]
    assert search.end_of_batches(runs, CELL) == "a batch of 128 would need 9.0 GB"


def test_a_batch_whose_run_fails_ends_the_batches_and_the_one_before_counts():
    runs = searched(lambda batch_size, _: None if batch_size == 64 else float(batch_size))
    assert described(runs) == [(16, "none"), (32, "none"), (64, "none"), (32, "cap=1"), (32, "view=True")]
    assert search.chosen(runs) == Trial(32)
    assert search.end_of_batches(runs, CELL) == "a batch of 64 failed"


def test_a_search_whose_default_fails_ends():
    assert described(searched(lambda *_: None)) == [(16, "none")]
    assert table.best_of("cnn", 2, "ddp", {Trial(16): Measured(None)}, CELL, gain_of) is None
    assert table.best_of("cnn", 2, "ddp", {}, CELL, gain_of) is None


def test_the_default_and_the_best_are_repeated_in_turns_and_a_whole_training_ends_the_search():
    runs = list(searched(saturating, CELL._replace(num_pairs=3, has_target=True)))
    best = Trial(64, "view=True")
    assert runs[5:] == [
        Trial(16, purpose="pair"), best._replace(purpose="pair"),
        best._replace(purpose="pair", repeat=1), Trial(16, purpose="pair", repeat=1),
        Trial(16, purpose="pair", repeat=2), best._replace(purpose="pair", repeat=2),
        best._replace(purpose="solution"),
    ]  # fmt: skip


def test_where_the_default_is_the_best_nothing_is_repeated():
    runs = searched(lambda batch_size, setting: 100.0 if (batch_size, setting) == (16, "none") else 90.0, CELL._replace(num_pairs=6))
    assert all(trial.purpose == "search" for trial in runs)


def test_the_gain_is_that_of_the_pairs_and_not_that_of_the_runs_by_which_the_best_was_chosen():
    cell, best = CELL._replace(num_pairs=3, has_target=True), Trial(64, "view=True")
    runs = searched(saturating, cell)
    for repeat, (below, above) in enumerate([(100.0, 120.0), (200.0, 260.0), (50.0, 61.0)]):
        runs[Trial(16, purpose="pair", repeat=repeat)] = Measured(below)
        runs[best._replace(purpose="pair", repeat=repeat)] = Measured(above)
    best_so_far = table.best_of("cnn", 2, "ddp", runs, cell, gain_of)
    assert best_so_far.gain.value == pytest.approx(math.prod((1.2, 1.3, 1.22)) ** (1 / 3))
    low, high = map(float, best_so_far.gain.interval.split(" to "))
    assert low < 1.2 < high
    assert (best_so_far.default_speed, best_so_far.speed) == (pytest.approx(100.0), pytest.approx(100 * best_so_far.gain.value))
    assert (best_so_far.chosen, best_so_far.seconds_to_target) == (best, "not reached")
    runs[best._replace(purpose="solution")] = Measured(150.0, None, 3.5)
    # An interrupted pair does not count.
    del runs[Trial(16, purpose="pair", repeat=2)]
    unfinished = table.best_of("cnn", 2, "ddp", runs, cell, gain_of)
    assert (unfinished.seconds_to_target, unfinished.gain.interval) == (3.5, None)

"""The order of turns, what fits beside others, and what becomes of the runs of a group where one ends, fails or is interrupted."""

import collections
import itertools
import os
import random
import subprocess

import numpy as np
import pynvml
import pytest

from launch.run import turns
from tests.support import nvml

GIB = 2**30


class Runs:
    """Runs that note each of their turns: `seen` has (number, turn), with turn 0 for getting ready and "closed" for being ended."""

    def __init__(self, num_turns, failing=None):
        self.num_turns, self.failing, self.seen, self.ended = num_turns, failing, [], []
        # Kept, since a generator that nobody has is closed anyway.
        self.generators = []

    def start(self, number):
        def run():
            try:
                for turn in range(self.num_turns[number] + 1):
                    self.seen.append((number, turn))
                    if (number, turn) == self.failing:
                        raise KeyboardInterrupt
                    if turn < self.num_turns[number]:
                        yield [100 + number]
                return f"record {number}"
            except GeneratorExit:
                self.seen.append((number, "closed"))
                raise

        self.generators.append(run())
        return self.generators[-1]

    def take(self, another_fits=lambda _: True):
        starts = [lambda number=number: self.start(number) for number in range(len(self.num_turns))]
        turns.side_by_side(starts, another_fits, lambda *ended: self.ended.append(ended))


def test_all_are_ready_before_the_first_turn_and_those_that_have_not_ended_have_one_turn_in_each_round():
    runs = Runs([3, 3, 1])
    runs.take()
    assert runs.seen[:3] == [(0, 0), (1, 0), (2, 0)]
    assert sorted(runs.seen[3:6]) == [(0, 1), (1, 1), (2, 1)]
    assert [sorted(runs.seen[first : first + 2]) for first in (6, 8)] == [[(0, turn), (1, turn)] for turn in (2, 3)]
    assert sorted(runs.ended) == [(0, "record 0"), (1, "record 1"), (2, "record 2")]


def test_a_run_follows_each_of_the_others_about_equally_often():
    random.seed(1)
    runs = Runs([1000, 1000, 1000])
    runs.take()
    pairs = collections.Counter((before, after) for (before, _), (after, _) in itertools.pairwise(runs.seen) if before != after)
    assert len(pairs) == 6
    assert max(pairs.values()) < 1.2 * min(pairs.values())


def test_runs_that_do_not_fit_follow_when_the_others_have_ended():
    calls = []
    runs = Runs([1, 1, 1])
    runs.take(lambda pids: calls.append(list(pids)) or len(pids) < 2)
    assert [number for number, turn in runs.seen if turn == 0] == [0, 1, 2]
    assert runs.seen.index((2, 0)) == 4
    assert calls == [[[100]], [[100], [101]]]
    assert len(runs.ended) == 3


@pytest.mark.parametrize("failing", [(1, 0), (1, 2)])
def test_an_interruption_ends_the_others(failing):
    runs = Runs([3, 3], failing)
    with pytest.raises(KeyboardInterrupt):
        runs.take()
    assert runs.seen[-1] == (0, "closed")
    assert runs.ended == []


@pytest.mark.parametrize(
    ("bytes_by_run", "available_bytes", "expected"),
    [
        ([], 0, True),
        ([2 * GIB], 3 * GIB, True),
        ([2 * GIB], 3 * GIB - 1, False),
        ([GIB, 4 * GIB, 2 * GIB], 6 * GIB, True),
        ([4 * GIB], float("inf"), True),
    ],
)
def test_one_more_as_large_as_the_largest_must_fit(bytes_by_run, available_bytes, expected, monkeypatch):
    monkeypatch.setattr(turns, "memory_of_node", lambda pids_by_run: (bytes_by_run, available_bytes))
    assert turns.fits_beside([]) is expected


def test_the_memory_of_a_run_is_what_its_processes_that_have_not_ended_share_with_no_other():
    ended = subprocess.Popen(["true"])
    ended.wait()
    (bytes_before,), available_bytes = turns.memory_of_node([[os.getpid(), ended.pid]])
    array = np.ones(2**24)
    assert turns.memory_of_node([[os.getpid(), ended.pid]])[0][0] - bytes_before == pytest.approx(array.nbytes, rel=0.1)
    assert available_bytes > 0


def test_a_run_must_fit_on_each_gpu(monkeypatch):
    nvml.install(monkeypatch, nvml.Driver())
    runs = [[1], [7, 9]]
    assert turns.memory_of_gpus(runs) == [([GIB, 0], 9 * GIB), ([GIB, 3 * GIB], 4 * GIB), ([0, 0], 5 * GIB)]
    assert not turns.fits_beside(runs)
    assert turns.fits_beside([[1], [9]])
    # Where NVML does not tell it, the memory of GPUs is left out.
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", nvml.refuse)
    assert turns.memory_of_gpus([[1]]) == []

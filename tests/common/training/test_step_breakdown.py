"""The profiled epoch: its schedule, and the spans of steps and waits for data."""

import contextlib
import time
from types import SimpleNamespace

import pytest

from common import chrome_trace
from common.ranks.launcher_variables import Ranks
from common.training import step_breakdown
from common.training.step_breakdown import NUM_CLOCK_SAMPLES, schedule_for


@pytest.mark.parametrize(
    ("num_steps", "schedule"),
    [(8, (1, 2, 5)), (7, (1, 1, 5)), (4, (1, 1, 2)), (2, (1, 0, 1)), (1, (0, 0, 1))],
)
def test_a_schedule_fits_into_its_epoch_and_keeps_a_step(num_steps, schedule):
    assert schedule_for(num_steps) == schedule


class Batches:
    """Batches with a delay."""

    def __len__(self):
        return 3

    def __iter__(self):
        for number in range(3):
            time.sleep(0.02)
            yield number


@pytest.fixture
def profile(tmp_path):
    """profile(train_epoch) marks an epoch of rank 1, of a trainer without a profiler, in tmp_path. Returns the number of its sums."""

    def run(train_epoch):
        sums = []
        unprofiled = lambda *_: contextlib.nullcontext(lambda: None)  # noqa: E731
        trainer = SimpleNamespace(ranks=Ranks(1, 2), sum=sums.append, train_epoch=train_epoch, profiled=unprofiled)
        step_breakdown.profile_epoch(tmp_path, trainer, Batches())
        return len(sums)

    return run


def test_spans_of_steps_and_of_waits_for_data(profile, tmp_path):
    trained = []

    def train_epoch(batches, observe):
        assert len(batches) == 3
        for batch in batches:
            time.sleep(0.01)
            observe(0.0)
            trained.append(batch)

    assert profile(train_epoch) == NUM_CLOCK_SAMPLES
    assert trained == [0, 1, 2]
    path = tmp_path / "spans.1.json.gz"
    assert list(tmp_path.iterdir()) == [path]
    events = list(chrome_trace.events(path))
    assert [(event["name"], event["args"]["step"]) for event in events] == [(name, step) for step in range(3) for name in ("data", "step")]
    for data, step in zip(events[::2], events[1::2], strict=True):
        assert data["dur"] >= 20_000
        assert step["ts"] <= data["ts"]
        assert step["ts"] + step["dur"] >= data["ts"] + data["dur"] + 10_000
    metadata = chrome_trace.value(path, "metadata")
    assert (metadata["rank"], len(metadata["meetings"])) == (1, NUM_CLOCK_SAMPLES)
    assert abs(metadata["origin_nanoseconds"] - time.time_ns()) < 60e9


def test_an_epoch_that_fails_leaves_no_spans(profile, tmp_path):
    def fail(batches, observe):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        profile(fail)
    assert list(tmp_path.iterdir()) == []

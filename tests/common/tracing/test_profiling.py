"""The profiled epoch: its schedule, and the spans of steps and waits for data."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.tracing import chrome, sources
from common.tracing.profiling import NUM_CLOCK_SAMPLES, framework_of, profiled, schedule_for


@pytest.mark.parametrize(
    ("num_steps", "schedule"), [(100, (1, 2, 5)), (8, (1, 2, 5)), (7, (1, 1, 5)), (4, (1, 1, 2)), (2, (1, 0, 1)), (1, (0, 0, 1))]
)
def test_schedule(num_steps, schedule):
    assert schedule_for(num_steps) == schedule


@given(st.integers(1, 50))
def test_a_schedule_fits_into_its_epoch_and_keeps_a_step(num_steps):
    wait, warmup, active = schedule_for(num_steps)
    assert min(wait, warmup) >= 0
    assert active >= 1
    assert wait + warmup + active <= num_steps


@pytest.mark.parametrize(
    ("modules", "framework"),
    [({"torch"}, "torch"), ({"tensorflow"}, "tensorflow"), ({"torch", "tensorflow", "deepspeed"}, "torch"), ({"numpy"}, None)],
)
def test_framework_of(modules, framework):
    assert framework_of(modules) == framework


def slow_batches(num, seconds):
    for number in range(num):
        time.sleep(seconds)
        yield number


class Batches:
    """Batches with a delay."""

    def __len__(self):
        return 3

    def __iter__(self):
        return slow_batches(3, 0.02)


def test_spans_without_a_profiler(tmp_path):
    calls = []
    with profiled(tmp_path, 1, 3, lambda: calls.append(None), None) as hooks:
        batches = hooks.batches(Batches())
        assert len(batches) == 3
        seen = []
        for batch in batches:
            time.sleep(0.01)
            hooks.step()
            seen.append(batch)
    assert seen == [0, 1, 2]
    assert len(calls) == NUM_CLOCK_SAMPLES
    path = tmp_path / "spans.1.json.gz"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    events = list(chrome.events(path))
    assert chrome.check(events).num_problems == 0
    assert [(event["name"], event["args"]["step"]) for event in events] == [(name, step) for step in range(3) for name in ("data", "step")]
    for data, step in zip(events[::2], events[1::2], strict=True):
        assert data["dur"] >= 20_000
        assert step["ts"] <= data["ts"]
        assert step["ts"] + step["dur"] >= data["ts"] + data["dur"] + 10_000
    metadata = chrome.value(path, "metadata")
    assert (metadata["rank"], len(metadata["meetings"])) == (1, NUM_CLOCK_SAMPLES)
    assert abs(metadata["origin_nanoseconds"] - time.time_ns()) < 60e9
    # Before the next step begins, this one has ended.
    before, after = sources.steps_in(events, metadata["origin_nanoseconds"])
    assert all(before[number] <= after[number] for number in before.keys() & after.keys())
    assert (before.keys(), after.keys()) == ({1, 2, 3}, {0, 1, 2})


def test_an_epoch_that_fails_leaves_no_spans(tmp_path):
    with pytest.raises(RuntimeError), profiled(tmp_path, 0, 3, lambda: None, None):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []

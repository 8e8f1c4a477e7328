"""The step breakdown with clocks that wait for the device, and what pinned memory does to the wait for data."""

import functools
import json
import sys

import numpy as np

from tests.gpu import data
from tests.gpu.checking import Todo
from tests.gpu.running import run, train

# A step of the breakdown and the mean step of training take about as long; one that was only queued takes a small part of it.
MOST_APART = 3.0
SHARE = 0.2
NUM_STEPS = {True: 40, False: 6}
BACKENDS = ("single", "ddp", "fsdp", "deepspeed_zero")


def num_at_once(_):
    return 1


def todo(session):
    names = [name for name in BACKENDS if name in session.lacks]
    found = [Todo(f"parts of a step of {name}", functools.partial(parts, session, name)) for name in names]
    return [*found, Todo("copies to the GPU from pinned memory", lambda: copies(session))]


def parts(session, backend):
    """The parts of a step in milliseconds. They add up to it, and it takes about as long as in training."""
    workload, context, batch_size = ("transformer-base", 256, 32) if session.on_gpu else ("transformer", 64, 8)
    source = data.stories(session.scratch, batch_size * NUM_STEPS[session.on_gpu], context)
    options = ("--workload", workload, *source, "--batch-size", batch_size, "--epochs", "2", "--no-stop-at-target")
    record = train(session, backend, f"breakdown-{backend}", *options, seconds=90.0)
    found = record["step_breakdown"]
    names = ("data_wait_seconds", "compute_seconds", "communication_exposed_seconds")
    step, values = np.mean(found["step_seconds"]), {name: np.mean(found[name]) for name in names}
    assert abs(sum(values.values()) / step - 1) < 1e-6, f"the parts do not add up to the step: {values}, {step}"
    num_steps = len(record["step_seconds"]) // 2
    trained = record["train_seconds"][-1] / num_steps
    assert 1 / MOST_APART < step / trained < MOST_APART, f"a step takes {step:.4g} s in the breakdown and {trained:.4g} s in training"
    return {"step (ms)": 1000 * step, "in training (ms)": 1000 * trained} | {
        f"{name.removesuffix('_seconds')} (ms)": 1000 * float(value) for name, value in values.items()
    }


def copies(session):
    """Milliseconds until a copy from pageable and from pinned memory returns and is done. That from pinned memory returns first."""
    session.expect_gpu()
    status, printed = run(session, "breakdown-copies", [sys.executable, "-m", "tests.gpu.copies"], 60.0)
    assert status == 0, "see logs/breakdown-copies.txt"
    found = json.loads(printed.splitlines()[-1])
    assert found["pinned returns (ms)"] < found["pinned done (ms)"] / 2, f"the copy from pinned memory waits: {found}"
    return found

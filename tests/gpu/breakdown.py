"""The step breakdown with clocks that wait for the device."""

import numpy as np

from tests.gpu.plugin import SESSION
from tests.gpu.running import train

# A step of the breakdown and the mean step of training take about as long; one that was only queued takes a small part of it.
MOST_APART = 3.0
SHARE = 0.2
NUM_STEPS = {True: 40, False: 6}
BACKENDS = ("single", "ddp", "fsdp", "deepspeed_zero")


def pytest_generate_tests(metafunc):
    if "backend" in metafunc.fixturenames:
        names = [name for name in BACKENDS if name in metafunc.config.stash[SESSION].lacks]
        metafunc.parametrize("backend", names, ids=lambda name: f"parts of a step of {name}")


def test_parts_of_a_step(backend, session, measured):
    """The parts add up to the step, which takes about as long as in training."""
    workload, batch_size = ("transformer-base", 32) if session.on_gpu else ("transformer", 8)
    length = ("--batch-size", batch_size, "--epochs", 2, "--no-stop-at-target")
    record = train(
        session, backend, f"breakdown-{backend}", "--workload", workload, *length, seconds=90.0, num_steps=NUM_STEPS[session.on_gpu]
    )
    breakdown = record.step_breakdown
    names = ("data_wait_seconds", "compute_seconds", "communication_exposed_seconds")
    step, parts = np.mean(breakdown.step_seconds), {name: np.mean(getattr(breakdown, name)) for name in names}
    assert abs(sum(parts.values()) / step - 1) < 1e-6, f"the parts do not add up to the step: {parts}, {step}"
    num_steps = len(record.step_seconds) // 2
    trained = record.train_seconds[-1] / num_steps
    assert 1 / MOST_APART < step / trained < MOST_APART, f"a step takes {step:.4g} s in the breakdown and {trained:.4g} s in training"
    measured |= {"step (ms)": 1000 * step, "in training (ms)": 1000 * trained}
    measured |= {f"{name.removesuffix('_seconds')} (ms)": 1000 * float(seconds) for name, seconds in parts.items()}

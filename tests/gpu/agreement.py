"""Float64 agreement: CPU against GPU, every backend with one rank, and backends whose two ranks may share the GPU, against `single`."""

import functools
import os

import numpy as np

from common.backends import BASELINE, declared
from tests.gpu import data
from tests.gpu.checking import Todo, once
from tests.gpu.running import train

SHARE = 0.35
BATCH_SIZE, NUM_STEPS = 8, 40
# With float32 master parameters (DeepSpeed) training soon amplifies their rounding, so that fewer steps count.
BOUND, BOUND_OF_FLOAT32, NUM_FIRST_STEPS = 1e-10, 1e-5, 10
WORKLOADS = {"cnn": "sgd", "transformer": "adam"}
# A global batch of one size at any number of ranks, so that all train the same thing.
SAME = (
    "--precision", "fp64", "--scaling", "strong", "--batch-size", str(BATCH_SIZE), "--epochs", "1", "--warmup-epochs", "0.5",
    "--no-stop-at-target", "--no-step-breakdown",
)  # fmt: skip
FIRST_SECONDS, RUN_SECONDS = 120.0, 90.0


def num_at_once(session):
    """Nothing is timed, so several may run at once."""
    return max(1, min(4, len(os.sched_getaffinity(0)) // (2 if session.on_gpu else 4)))


def todo(session):
    """The checks: the reference first, which all others wait for."""
    num_samples = BATCH_SIZE * NUM_STEPS
    sources = {"cnn": data.digits(session.scratch, num_samples), "transformer": data.stories(session.scratch, num_samples, 64)}
    exact = [name for name in session.lacks if not (declared()[name].approximate is True or declared()[name].num_servers)]
    sharing = [name for name in exact if declared()[name].can_share_gpu and not declared()[name].one_rank]
    found = []
    for workload, optimizer in WORKLOADS.items():
        options = ("--workload", workload, "--optimizer", optimizer, *sources[workload], *SAME)
        on_cpu = once(functools.partial(losses, session, BASELINE, f"{workload}-{BASELINE}-cpu", *options, device="cpu"))
        found.append(Todo(f"{workload}: {BASELINE} on the CPU", lambda on_cpu=on_cpu: {"steps": len(on_cpu())}))
        for name in exact:
            compare = functools.partial(compared, session, name, f"{workload}-{name}-1", on_cpu, options, 1)
            if name != BASELINE or session.on_gpu:
                found.append(Todo(f"{workload}: {name}, 1 rank, against the CPU", compare))
        for name in sharing:
            compare = functools.partial(compared, session, name, f"{workload}-{name}-2", on_cpu, (*options, "--share-gpu"), 2)
            found.append(Todo(f"{workload}: {name}, 2 ranks that share it, against the CPU", compare))
    return found


def losses(session, backend, name, *options, num_ranks=1, device=None):
    """The loss of each step of a run."""
    record = train(session, backend, f"agreement-{name}", *options, num_ranks=num_ranks, seconds=RUN_SECONDS, device=device)
    return np.array(record["losses"], dtype=float)


def compared(session, backend, name, reference, options, num_ranks):
    """The largest relative difference of a run's losses from the reference's; AssertionError above the bound."""
    session.expect(backend)
    rounded = declared()[backend].float32_masters
    expected = reference()
    found = losses(session, backend, name, *options, num_ranks=num_ranks)
    assert len(found) == len(expected), f"{len(found)} steps, and {len(expected)} of the reference"
    differences = np.abs(found / expected - 1)[: NUM_FIRST_STEPS if rounded else None]
    bound = BOUND_OF_FLOAT32 if rounded else BOUND
    assert differences.max() <= bound, f"the losses differ by {differences.max():.1e}, more than {bound:g}"
    return {"largest difference": float(differences.max()), "bound": bound, "steps": len(differences)}

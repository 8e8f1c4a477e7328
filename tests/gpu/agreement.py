"""Float64 agreement: CPU against GPU, every backend with one rank, and backends whose two ranks may share the GPU, against `single`."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest

from common.declarations import BASELINE, declared
from tests.gpu.plugin import SESSION
from tests.gpu.running import train

SHARE = 0.45
NUM_STEPS = 40
# With float32 master parameters (DeepSpeed) training soon amplifies their rounding, so that fewer steps count.
BOUND, BOUND_OF_FLOAT32, NUM_FIRST_STEPS = 1e-10, 1e-5, 10
OPTIMIZERS = {"cnn": "sgd", "transformer": "adam"}
# A global batch of one size at any number of ranks, so that all train the same thing.
SAME = (
    "--precision", "fp64", "--scaling", "strong", "--batch-size", 8, "--epochs", 1,
    "--warmup-epochs", 0.5, "--no-stop-at-target", "--no-step-breakdown",
    # Runs that start at once would all be bound to the first cores.
    "--no-bind",
)  # fmt: skip
RUN_SECONDS = 90.0


class Run(NamedTuple):
    """A training of a workload; without a number of ranks it is the reference, on the CPU."""

    workload: str
    backend: str = BASELINE
    num_ranks: int | None = None

    def __str__(self):
        if self.num_ranks is None:
            return f"{self.workload}: {self.backend} on the CPU"
        ranks = "1 rank" if self.num_ranks == 1 else f"{self.num_ranks} ranks that share it"
        return f"{self.workload}: {self.backend}, {ranks}, against the CPU"


REFERENCES = [Run(workload) for workload in OPTIMIZERS]


def compared(session):
    """The runs that are compared with the reference of their workload."""
    exact = [name for name in session.lacks if not (declared()[name].approximate is True or declared()[name].num_servers)]
    alone = [name for name in exact if name != BASELINE or session.on_gpu]
    sharing = [name for name in exact if declared()[name].can_share_gpu and not declared()[name].one_rank]
    return [Run(workload, name, num_ranks) for workload in OPTIMIZERS for num_ranks, names in ((1, alone), (2, sharing)) for name in names]


def pytest_generate_tests(metafunc):
    if "run" in metafunc.fixturenames:
        metafunc.parametrize("run", compared(metafunc.config.stash[SESSION]), ids=str)


@pytest.fixture(scope="module")
def losses_of(session, request):
    """A function that gives the losses of a run. Nothing is timed, so several runs are made at once."""
    num_at_once = max(1, min(4, len(os.sched_getaffinity(0)) // (2 if session.on_gpu else 4)))
    callspecs = [item.callspec for item in request.session.items if hasattr(item, "callspec")]
    chosen = [run for callspec in callspecs for run in callspec.params.values() if isinstance(run, Run)]
    references = {Run(run.workload) for run in chosen}
    with ThreadPoolExecutor(num_at_once) as pool:
        futures = {run: pool.submit(losses, session, run) for run in dict.fromkeys([*references, *chosen])}
        yield lambda run: futures[run].result()


def losses(session, run):
    """The loss of each step of a run."""
    options = ["--workload", run.workload, "--optimizer", OPTIMIZERS[run.workload], *SAME]
    options += ["--share-gpu"] if run.num_ranks == 2 else []
    name = f"agreement-{run.workload}-{run.backend}-{run.num_ranks or 'cpu'}"
    device = None if run.num_ranks else "cpu"
    num_ranks = run.num_ranks or 1
    record = train(session, run.backend, name, *options, num_ranks=num_ranks, seconds=RUN_SECONDS, device=device, num_steps=NUM_STEPS)
    return np.array(record.losses, dtype=float)


@pytest.mark.parametrize("reference", REFERENCES, ids=str)
def test_reference(reference, losses_of, measured):
    measured["steps"] = len(losses_of(reference))


def test_agreement(run, session, losses_of, measured):
    """The losses of a run differ from those of its reference by at most the bound."""
    session.expect(run.backend)
    rounded = declared()[run.backend].float32_masters
    expected, actual = losses_of(Run(run.workload)), losses_of(run)
    assert len(actual) == len(expected), f"{len(actual)} steps, and {len(expected)} of the reference"
    differences = np.abs(actual / expected - 1)[: NUM_FIRST_STEPS if rounded else None]
    bound = BOUND_OF_FLOAT32 if rounded else BOUND
    assert differences.max() <= bound, f"the losses differ by {differences.max():.1e}, more than {bound:g}"
    measured |= {"largest difference": float(differences.max()), "bound": bound, "steps": len(differences)}

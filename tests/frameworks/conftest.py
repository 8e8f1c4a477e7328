"""What several files share: both frameworks, and the runs of the contract (tests/support/contract.py), which are made once a backend."""

import functools
import importlib

import pytest

from common.backends import file_of
from tests.support import small_data
from tests.support.agreement_runs import FEW_SAMPLES, MANY_SAMPLES, NUM_TEST_SAMPLES
from tests.support.backends import started_in_order
from tests.support.contract import runs_of
from tests.support.running import train_in_turn

# The parameters of the runs that are over are kept (tests/support/fault_injection.py).
RUNS_OF_A_PROCESS = 90


@pytest.fixture(scope="module")
def frameworks(request):
    """Imports both frameworks into the test's module when its first test runs: other processes only collect these tests.

    PyTorch's modules have their own names there, and TensorFlow's those of `tensorflow`.
    """
    for name in ("devices", "models", "states", "steps"):
        setattr(request.module, name, importlib.import_module(f"frameworks.shared.pytorch.{name}"))
        importlib.import_module(f"frameworks.shared.tensorflow.{name}")
    request.module.tensorflow = importlib.import_module("frameworks.shared.tensorflow")


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """{whether short: {workload: the arguments that read its data}}"""
    folder = tmp_path_factory.mktemp("data")
    num_samples = {False: MANY_SAMPLES, True: FEW_SAMPLES}
    return {is_short: small_data.write(folder / f"{num}", num, NUM_TEST_SAMPLES) for is_short, num in num_samples.items()}


@pytest.fixture(scope="session")
def trained(tmp_path_factory, data):
    """A function that returns (record, final parameters) of a run of a backend, or of a variant, at a number of ranks."""

    @functools.cache
    def all_of(backends, ranks):
        """The runs of backends that one process can train, by process."""
        named_runs = [named_run for backend in backends for named_run in runs_of(backend, ranks)]
        # Horovod cannot be started over Gloo after MPI.
        runs = sorted(named_runs, key=lambda named_run: not named_run[0].endswith("@gloo"))
        return [tuple(runs[first : first + RUNS_OF_A_PROCESS]) for first in range(0, len(runs), RUNS_OF_A_PROCESS)]

    @functools.cache
    def results_of(runs, ranks):
        folder = tmp_path_factory.mktemp("runs")
        results = train_in_turn(ranks, folder, [(file_of(name), run.fault, *run.arguments(data, name)) for name, run in runs])
        if all(record["status"] == "ok" for record, _ in results):
            # What AutoGraph writes of a traced function is removed where a run ends well.
            assert list(folder.glob("*autograph*")) == []
        return dict(zip(runs, results, strict=True))

    def trained(name, ranks, run):
        runs = next(runs for runs in all_of(started_in_order(file_of(name)), ranks) if (name, run) in runs)
        return results_of(runs, ranks)[name, run]

    return trained

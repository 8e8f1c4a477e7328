"""What several files share: both frameworks, and the runs of the collected tests, which are made once."""

import functools
import importlib
from collections import Counter

import pytest

from common.backends import file_of
from tests.support import small_data
from tests.support.agreement_runs import FEW_SAMPLES, MANY_SAMPLES, NUM_TEST_SAMPLES
from tests.support.backends import started_in_order
from tests.support.running import train_in_turn

# The parameters of the runs that are over are kept (tests/support/fault_injection.py).
RUNS_OF_A_PROCESS = 110


@pytest.fixture(scope="module")
def frameworks(request):
    """Imports both frameworks into the test's module when its first test runs: other processes only collect these tests.

    PyTorch's modules have their own names there, and TensorFlow's those of `tensorflow`.
    """
    for name in ("devices", "modules", "states", "steps"):
        setattr(request.module, name, importlib.import_module(f"frameworks.shared.pytorch.{name}"))
    for name in ("losses", "models", "optimizer", "tensorflow_trainer", "variables"):
        importlib.import_module(f"frameworks.shared.tensorflow.{name}")
    request.module.tensorflow = importlib.import_module("frameworks.shared.tensorflow")


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """{whether short: {workload: the arguments that read its data}}"""
    folder = tmp_path_factory.mktemp("data")
    num_samples = {False: MANY_SAMPLES, True: FEW_SAMPLES}
    return {is_short: small_data.write(folder / f"{num}", num, NUM_TEST_SAMPLES) for is_short, num in num_samples.items()}


def runs_of(items):
    """[(name, ranks, run)] of all runs that tests need, by the function of its parameters in its mark `runs`."""
    # A test without a value for its parameters is skipped.
    marked = [
        (mark.kwargs["needed"], getattr(item, "callspec", None))
        for item in items
        if (mark := item.get_closest_marker("runs")) and not item.get_closest_marker("skip")
    ]
    return list(dict.fromkeys(run for needed, callspec in marked for run in needed(**(callspec.params if callspec else {}))))


def pytest_report_collectionfinish(items):
    num_runs = Counter(file_of(name) for name, *_ in runs_of(items))
    return f"runs to train: {num_runs.total()}: {', '.join(f'{num} of {name}' for name, num in num_runs.items())}" if num_runs else []


@pytest.fixture(scope="session")
def trained(tmp_path_factory, data, request):
    """A function that returns (record, final parameters) of a run of a backend, or of a variant, at a number of ranks.

    The runs of all collected tests are made in as few processes as can be.
    """
    needed = runs_of(request.session.items)

    @functools.cache
    def all_of(backends, ranks):
        """The runs of backends that one process can train, by process."""
        named_runs = [(name, run) for name, num_ranks, run in needed if num_ranks == ranks and file_of(name) in backends]
        # Horovod cannot be started over Gloo after MPI.
        runs = sorted(named_runs, key=lambda named_run: (not named_run[0].endswith("@gloo"), backends.index(file_of(named_run[0]))))
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

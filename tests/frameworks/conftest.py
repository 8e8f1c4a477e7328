"""What several files share: both frameworks, and the runs of the collected tests, which are made once."""

import functools
import importlib
from collections import Counter

import pytest

from common.backends import file_of
from tests.support import small_data
from tests.support.agreement_runs import FEW_SAMPLES, MANY_SAMPLES, NUM_TEST_SAMPLES
from tests.support.backends import runs_of, started_in_order
from tests.support.running import train_in_turn


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


def runs_of_all(items):
    return list(dict.fromkeys(run for item in items for run in runs_of(item)))


def pytest_report_collectionfinish(items):
    num_runs = Counter(file_of(name) for name, *_ in runs_of_all(items))
    return f"runs to train: {num_runs.total()}: {', '.join(f'{num} of {name}' for name, num in num_runs.items())}" if num_runs else []


@pytest.fixture(scope="session")
def results_of(tmp_path_factory, data):
    """A function that returns {(name, run): (record, final parameters)} of runs that one process can train, at a number of ranks."""

    @functools.cache
    def results_of(named_runs, ranks):
        folder = tmp_path_factory.mktemp("runs")
        results = train_in_turn(ranks, folder, [(file_of(name), run.fault, *run.arguments(data, name)) for name, run in named_runs])
        if all(record["status"] == "ok" for record, _ in results):
            # What AutoGraph writes of a traced function is removed where a run ends well.
            assert list(folder.glob("*autograph*")) == []
        return dict(zip(named_runs, results, strict=True))

    return results_of


@pytest.fixture(scope="session")
def named_runs_of(request):
    """A function that returns the runs that the collected tests of a group need, of some backends at a number of ranks."""

    @functools.cache
    def needed_by(group):
        marked = [(item, item.get_closest_marker("xdist_group")) for item in request.session.items]
        return runs_of_all([item for item, mark in marked if mark and mark.kwargs["name"] == group])

    @functools.cache
    def named_runs_of(group, backends, ranks):
        named_runs = [(name, run) for name, num_ranks, run in needed_by(group) if num_ranks == ranks and file_of(name) in backends]
        # Horovod cannot be started over Gloo after MPI.
        return tuple(sorted(named_runs, key=lambda named: (not named[0].endswith("@gloo"), backends.index(file_of(named[0])))))

    return named_runs_of


@pytest.fixture
def trained(request, named_runs_of, results_of):
    """A function that returns (record, final parameters) of a run of a backend, or of a variant, at a number of ranks.

    The runs that the tests of a group need are made in as few processes as can be.
    """
    group = request.node.get_closest_marker("xdist_group").kwargs["name"]

    def trained(name, ranks, run):
        return results_of(named_runs_of(group, started_in_order(file_of(name)), ranks), ranks)[name, run]

    return trained

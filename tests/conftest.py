"""Fixtures that more than one test file uses, and how the tests are divided over processes."""

import functools
import gc
import os
from collections import Counter

import hypothesis
import pytest

from common import apart
from common.record import files
from tests.support.backends import group_of, runs_of
from tests.support.running import LIGHT, ROOT, copied, with_backends

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")
# The tests' own files are read here, without a process for each.
apart.begin()
# What is imported and collected stays: looking through it for garbage again and again, also in each fork, takes a tenth of the time.
gc.disable()
# Fixtures that are made once, since each takes seconds: the import of both frameworks, the committed records, a forecast of all backends, a
# page with its drawings, and a site's checkout.
SHARED = ("frameworks", "committed", "forecasts", "page", "site")
# Groups of tests that take more than a minute, the longest first: that of the launchers waits most, and others have the cores meanwhile.
LONGEST = (
    "launchers", "trained on PyTorch", "trained with a library", "trained on TensorFlow", "tests/launch/test_matrix.py",
    "tests/test_readme.py", "tests/launch/lesson/test_lessons.py", "tests/common/training/test_checkpoints.py",
    "tests/launch/run/test_verified_models.py", "tests/launch/trace/test_timeline.py", "tests/common/ranks/test_meeting.py",
    "tests/launch/run/test_hostile_node.py", "tests/launch/run/test_restart.py",
)  # fmt: skip


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """A copy of this checkout, uncommitted changes and all, with the same environment: a place for tests to write in."""
    return copied(tmp_path_factory.mktemp("checkout"))


@pytest.fixture
def light_checkout(checkout):
    """That copy with the light backend, for what only runs a matrix."""
    with with_backends(checkout, LIGHT):
        yield checkout


@pytest.fixture(scope="session")
def committed():
    """A function that returns the records of a committed set, which are read once."""

    @functools.cache
    def records_of(name):
        records, damaged = files.collect([ROOT / "results" / "reference" / name])
        assert damaged == []
        return tuple(records)

    return records_of


# First, since pytest and pytest-xdist read the marks in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks long tests as tests that start ranks too, and gives those of a file to one process of `--dist loadgroup`: they share runs.

    Those of the launchers share their runs as well, so do those of the backends of a group, and those with one of the fixtures SHARED share
    that, whether they start ranks or not.

    The groups come first, those that take LONGEST and those with more tests before others, and then all tests without a group: the
    processes end at about the same time.
    """
    assert all((ROOT / group).exists() for group in LONGEST if "/" in group)
    groups = {}
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.matrix)
        shared = [name for name in SHARED if name in item.fixturenames]
        if runs := runs_of(item):
            shared.insert(0, group_of(*runs[0][:2]))
        if item.get_closest_marker("matrix") and "launchers" in item.path.parts:
            shared.append("launchers")
        elif item.get_closest_marker("matrix"):
            shared.append(item.nodeid.split("::")[0])
        if shared:
            item.add_marker(pytest.mark.xdist_group(name=shared[0]))
            groups[item] = shared[0]
    num_tests = Counter(groups.values())
    places = {group: place for place, group in enumerate([*LONGEST, *(group for group, _ in num_tests.most_common())][::-1])}
    items.sort(key=lambda item: places.get(groups.get(item), -1), reverse=True)


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _same_folder():
    """A process that reads a user's file goes to its folder."""
    yield
    os.chdir(ROOT)

"""Fixtures that more than one test file uses."""

import pytest

from tests.support.running import copied


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """A copy of this checkout, uncommitted changes and all, with the same environment: a place for tests to write in."""
    return copied(tmp_path_factory.mktemp("checkout"))


# First, since pytest-xdist reads the marks in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Divides the tests that start ranks over two processes of `--dist loadgroup`, so that those of a file share their runs.

    Both take about as long: the agreement of the backends, their step breakdowns and what is in tests/common, and all others.
    """
    long = ("test_agreement.py", "test_step_breakdown.py")
    for item in items:
        if item.get_closest_marker("matrix"):
            trains = item.path.name in long or "common" in item.path.parts
            item.add_marker(pytest.mark.xdist_group("training" if trains else "others"))

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
    """Keeps all tests that start ranks in one process of `--dist loadgroup`: they use both cores, and share their runs."""
    for item in items:
        if item.get_closest_marker("matrix"):
            item.add_marker(pytest.mark.xdist_group("ranks"))

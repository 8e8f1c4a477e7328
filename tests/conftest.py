"""Fixtures that more than one test file uses, and how the tests are divided over processes."""

import pytest

from tests.support.running import copied


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """A copy of this checkout, uncommitted changes and all, with the same environment: a place for tests to write in."""
    return copied(tmp_path_factory.mktemp("checkout"))


# First, since pytest and pytest-xdist read the marks in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks long tests as tests that start ranks too, and gives those of a file to one process of `--dist loadgroup`: they share runs.

    Files with more tests come first, so that the processes end at about the same time. Those of the launchers share their runs as well,
    and so do those that use the fixture `trained`.
    """
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.matrix)
        if item.get_closest_marker("matrix"):
            shared = ["launchers"] if "launchers" in item.path.parts else [name for name in ("trained",) if name in item.fixturenames]
            item.add_marker(pytest.mark.xdist_group((shared or item.nodeid.split("::"))[0]))

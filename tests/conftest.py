"""Fixtures that more than one test file uses."""

import pytest

from tests.running import copied


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """A copy of this checkout, uncommitted changes and all, with the same environment: a place for tests to write in."""
    return copied(tmp_path_factory.mktemp("checkout"))

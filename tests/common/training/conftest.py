"""Runs that take turns."""

import pytest

from common.training import clock


@pytest.fixture
def side_by_side(monkeypatch, tmp_path):
    """Runs take turns, the first of them of two seconds."""
    monkeypatch.setenv(clock.TURNS_VARIABLE, clock.node())
    monkeypatch.setenv(clock.TURNS_FILE_VARIABLE, str(tmp_path / "turns"))
    monkeypatch.setattr(clock, "TURN_SECONDS", 2.0)

"""A rank that lacks a variable of its matrix says so; really kept from ranks in tests/launch/launchers/test_arrival.py."""

import pytest

from common.process import arrival
from tests.support.mistakes import refused


@pytest.mark.parametrize("names", [["A"], ["A", "B"]])
def test_variables_that_are_there_are_expected_in_vain_by_nobody(names, monkeypatch):
    for name in names:
        monkeypatch.setenv(name, "")
    argv = ["ddp.py", "--epochs", "2", arrival.argument(names)]
    arrival.check(argv)
    assert argv == ["ddp.py", "--epochs", "2"]


def test_without_a_matrix_nothing_is_expected():
    arrival.check(["ddp.py"])


def test_a_variable_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("A", "1")
    monkeypatch.delenv("B", raising=False)
    with refused("B, which the matrix has set, did not reach this rank; ", "--export=ALL"):
        arrival.check(["ddp.py", arrival.argument(["A", "B"])])

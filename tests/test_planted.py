"""Each planted fault is caught by a test that it names; `tests/run.sh -m planted` plants them all."""

import re

import pytest

from tests.planted import faults, planting

FAULTS = faults.load()
FAILED = re.compile(r"^(?:FAILED|ERROR) ", re.MULTILINE)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_applies_to_one_line_and_names_tests(fault):
    assert faults.planted(fault, faults.product())
    assert faults.node_ids(fault)


@pytest.fixture(scope="module")
def copy(tmp_path_factory, request):
    """A copy of this checkout, in which the tests of all faults that are to be planted pass without a fault."""
    copy = planting.isolated_copy(tmp_path_factory.mktemp("planted").resolve())
    chosen = [
        item.callspec.params["fault"] for item in request.session.items if item.originalname == test_a_planted_fault_is_caught.__name__
    ]
    node_ids = dict.fromkeys(node_id for fault in chosen for node_id in faults.node_ids(fault))
    status, printed = planting.tested(copy, node_ids)
    assert status == 0, f"the tests do not pass without a fault:\n{printed}"
    return copy


# CI plants the first one, which shows that planting works.
@pytest.mark.parametrize(
    "fault", [FAULTS[0], *(pytest.param(fault, marks=pytest.mark.planted) for fault in FAULTS[1:])], ids=lambda fault: fault.name
)
@pytest.mark.matrix
def test_a_planted_fault_is_caught(fault, copy):
    with planting.planted(copy, fault):
        status, printed = planting.tested(copy, faults.node_ids(fault))
    assert status == 1, printed
    assert FAILED.search(printed), printed

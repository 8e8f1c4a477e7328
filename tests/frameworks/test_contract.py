"""Every backend has a row of the contract, which has nothing of what is not there."""

from common import backends
from common.cost import communication_buffers, sharing
from tests.support.backends import DISTRIBUTED
from tests.support.contract import NATIVE, REDUCED, ROWS


def test_every_backend_has_a_row_and_every_one_with_several_ranks_has_its_faults():
    assert set(ROWS) == set(backends.declared())
    assert {name for name, row in ROWS.items() if row.faults} == set(DISTRIBUTED)


def test_every_approximate_variant_has_its_bounds():
    variants = {variant for name in DISTRIBUTED if backends.is_exact(name) for variant in backends.variants_of(name)}
    assert {*REDUCED, *NATIVE} == {variant for variant in variants if not backends.is_exact(variant)}


def test_declarations_name_formulas_that_are_there():
    for backend in backends.declared().values():
        ways = backend.sharing.values() if isinstance(backend.sharing, dict) else [backend.sharing]
        assert set(ways) <= {None, *sharing.WAYS}
        assert backend.buffers in {None, *communication_buffers.BUFFERS}

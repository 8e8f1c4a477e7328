"""Every backend has a row of the contract, which has nothing of what is not there."""

from common import backends
from common.cost import communication_buffers, sharing
from tests.support.backends import DISTRIBUTED
from tests.support.contract import REDUCED, ROWS, named


def test_every_backend_has_a_row_and_every_one_with_several_ranks_has_its_faults():
    assert set(ROWS) == set(backends.declared())
    assert {name for name, row in ROWS.items() if row.faults} == set(DISTRIBUTED)


def test_the_rows_name_variants_that_are_there():
    variants = {one for name in ROWS for one in (name, *backends.variants_of(name))}
    assert set(named("held")) | set(named("off_theory")) <= variants
    assert {f"{name}@{variant}" for name, row in ROWS.items() for variant in row.tied} <= variants


def test_every_variant_that_reduces_gradients_in_another_way_has_its_bounds():
    approximate = {
        one for name in DISTRIBUTED if backends.is_exact(name) for one in backends.variants_of(name) if not backends.is_exact(one)
    }
    assert set(REDUCED) == approximate


def test_declarations_name_formulas_that_are_there():
    for backend in backends.declared().values():
        ways = backend.sharing.values() if isinstance(backend.sharing, dict) else [backend.sharing]
        assert set(ways) <= {None, *sharing.WAYS}
        assert backend.buffers in {None, *communication_buffers.BUFFERS}

"""Every backend has a row of the contract, which has nothing of what is not there, and runs with all settings that a backend reads."""

import re

import pytest

from common import backends
from common.command_line import flag
from common.config import TRAINING_SETTINGS
from common.cost import sharing
from tests.support.agreement_runs import EVER, SAME_TRAINING
from tests.support.backends import DISTRIBUTED
from tests.support.contract import COMPARISONS, REDUCED, ROW_OF_BACKEND, ROWS
from tests.support.forked import run_module
from tests.support.running import BIN, ROOT, completed


def test_every_backend_has_a_row_and_every_one_with_several_ranks_has_its_faults():
    assert set(ROW_OF_BACKEND) == set(backends.declared())
    assert {name for name, row in ROWS.items() if row.faults} == set(DISTRIBUTED)


def test_every_approximate_variant_has_its_bounds():
    variants = {variant for name in DISTRIBUTED if backends.is_exact(name) for variant in backends.variants_of(name)}
    assert set(REDUCED) == {variant for variant in variants if not backends.is_exact(variant)}


def test_declarations_name_formulas_that_are_there():
    for backend in backends.declared().values():
        strategies = backend.sharing.values() if isinstance(backend.sharing, dict) else [backend.sharing]
        assert set(strategies) <= {None, *sharing.STRATEGIES}


def test_every_setting_of_training_that_a_backend_reads_is_changed_in_a_run():
    """What the loop, the data and the model alone read is the same code for all backends."""
    sources = "".join(path.read_text() for path in (ROOT / "frameworks").rglob("*.py"))
    settings = {name for name in re.findall(r"settings\.(\w+)", sources) if name in TRAINING_SETTINGS}
    changed = {word for _, comparison in COMPARISONS for word in comparison.run.arguments({True: {}, False: {}})}
    assert settings
    assert {name for name in settings if flag(name) not in changed} == set()


def test_a_setting_with_which_plain_training_has_other_losses_is_in_the_digest():
    with_other_losses = [comparison.run.training for _, comparison in COMPARISONS if comparison.below == EVER]
    changed = {word for training in with_other_losses for word in training[len(SAME_TRAINING) :] if word.startswith("--")}
    assert changed
    assert changed - {flag(name) for name in TRAINING_SETTINGS} == set()


def test_the_tests_of_one_backend_train_its_runs_and_their_references_alone():
    _, listed, _ = run_module("pytest", "--collect-only", "-p", "no:cacheprovider", "tests/frameworks", "-k", "fsdp")
    num_runs = {name: int(num) for num, name in re.findall(r"(\d+) of (\w+)", re.search(r"runs to train: .*", listed)[0])}
    assert set(num_runs) == {"fsdp", "single"}
    assert num_runs["single"] < num_runs["fsdp"] < 30


@pytest.mark.matrix
def test_a_backend_is_removed_with_its_file_alone(checkout):
    """All tests are collected without any of those that are not in the default matrix."""
    removed = [checkout / "frameworks" / f"{name}.py" for name, backend in backends.declared().items() if not backend.by_default]
    texts = [path.read_text() for path in removed]
    try:
        for path in removed:
            path.unlink()
        collected = completed(BIN / "python", "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", cwd=checkout)
    finally:
        for path, text in zip(removed, texts, strict=True):
            path.write_text(text)
    assert collected.returncode == 0, collected.stdout[-2000:]
    assert len(removed) > 5

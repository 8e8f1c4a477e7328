"""What processes do otherwise is found by running the same file in several, each with one thing changed."""

import pytest

from common.apart import HERE
from common.config import Settings
from launch.run import experiments
from tests.support.planted_bugs import OF_PROCESSES, written
from tests.support.sound_traps import LOOK_WRONG

# By the order of sets, which is another one in each interpreter.
OF_INTERPRETERS = "order-of-a-set"
ENDS_RANKS = "\nimport os\nif 'PMI_RANK' in os.environ:\n    os._exit(3)\n"


def difference(folder, name, text):
    return experiments.between_processes(Settings(model=str(written(folder, name, text))), 2)


@pytest.mark.parametrize("name", sorted(OF_PROCESSES.keys() - {OF_INTERPRETERS}))
def test_what_differs_between_processes_and_ranks_is_named(name, tmp_path, monkeypatch):
    if "later" not in name:
        monkeypatch.setattr(experiments, "MAX_STEPS", 3)
    assert difference(tmp_path, name, OF_PROCESSES[name].text).startswith(OF_PROCESSES[name].cause)


@pytest.mark.matrix
def test_interpreters_that_order_sets_otherwise_are_compared(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    HERE.clear()
    try:
        found = difference(tmp_path, OF_INTERPRETERS, OF_PROCESSES[OF_INTERPRETERS].text)
    finally:
        HERE.set()
    assert found.startswith(OF_PROCESSES[OF_INTERPRETERS].cause)


@pytest.mark.parametrize(("name", "further"), [("global-augmentation", ""), ("one-fixed-mask", ENDS_RANKS)])
def test_nothing_differs_where_all_follows_a_seed_and_a_process_that_ends_is_no_difference(name, further, tmp_path):
    assert difference(tmp_path, name, LOOK_WRONG[name] + further) is None

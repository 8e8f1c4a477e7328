"""Mistakes in a user's file are found without training, each with its cause, and none in sound models."""

import dataclasses

import pytest

from common.apart import HERE
from common.config import Settings
from launch.run import experiments
from tests.support import planted_bugs
from tests.support.mistakes import refused
from tests.support.planted_bugs import OF_PROCESSES, BugIn, written
from tests.support.sound_models import SOUND
from tests.support.sound_traps import LOOK_WRONG
from tests.support.user_models import VECTORS

BUGS = [(kind, name, bug) for kind, bugs in planted_bugs.IN_ONE_PROCESS.items() for name, bug in bugs.items()]
SOUND_MODELS = SOUND | LOOK_WRONG
# What a library makes of its own of sound models: how the reason begins for which one that updates shards trains otherwise.
OF_SHARDS = {
    "clamped-weights": "the forward pass changes weight, of which", "mean-teacher": "the forward pass changes teacher.weight",
    "experts": "in steps that do not use experts.0.bias",
}  # fmt: skip
# No sample of the first ones goes to some of the experts.
WITHOUT_GRADIENT = {"experts": "experts.", "unused-parameters": "forgotten.weight"}
# The others are trained before a release too.
EXAMINED = [
    name if name in {*LOOK_WRONG, *OF_SHARDS, *WITHOUT_GRADIENT} else pytest.param(name, marks=pytest.mark.long) for name in SOUND_MODELS
]
# By the order of sets, which is another one in each interpreter.
OF_INTERPRETERS = "order-of-a-set"
ENDS_RANKS = "\nimport os\nif 'PMI_RANK' in os.environ:\n    os._exit(3)\n"


def examination(folder, name, text):
    return experiments.examine(Settings(model=str(written(folder, name, text))))


@pytest.mark.parametrize(("kind", "name", "bug"), BUGS, ids=[name for _, name, _ in BUGS])
def test_each_mistake_is_found_with_its_cause_and_no_other(kind, name, bug, tmp_path):
    examined = examination(tmp_path, name, bug.text)
    causes = {BugIn.FILE: list(examined.wrong.values()), BugIn.RANKS: examined.of_ranks, BugIn.SHARDS: [examined.of_shards]}
    assert [cause.startswith(bug.cause) for cause in causes.pop(kind)] == [True]
    # A state may be one of the evaluation too.
    assert not any(any(found_causes) for place, found_causes in causes.items() if (kind, place) != (BugIn.RANKS, BugIn.FILE))


@pytest.mark.parametrize("name", EXAMINED)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_nothing_is_found_in_sound_models(name, tmp_path):
    examined = examination(tmp_path, name, SOUND_MODELS[name])
    assert (examined.wrong, examined.of_ranks) == ({}, [])
    assert str(examined.of_shards).startswith(OF_SHARDS.get(name, "None"))
    assert (examined.without_gradient or [""])[0].startswith(WITHOUT_GRADIENT.get(name, ""))
    assert bool(examined.without_gradient) == (name in WITHOUT_GRADIENT)


def test_a_model_that_makes_its_parameters_float32_is_refused(tmp_path):
    text = VECTORS + "\nclass Net(nn.Linear):\n    def forward(self, x):\n        return super(Net, self.float()).forward(x.float())\n"
    with refused("--verify trains in float64, and the forward pass gives weight, bias another type; let them"):
        examination(tmp_path, "converted", text + "\ndef model():\n    return Net(4, 3)\n")


def test_a_workload_of_the_table_is_examined_as_a_file_is():
    examined = experiments.examine(dataclasses.replace(Settings(), workload="cnn"))
    assert (examined.wrong, examined.of_ranks, examined.of_shards, examined.without_gradient) == ({}, [], None, [])


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
        cause = difference(tmp_path, OF_INTERPRETERS, OF_PROCESSES[OF_INTERPRETERS].text)
    finally:
        HERE.set()
    assert cause.startswith(OF_PROCESSES[OF_INTERPRETERS].cause)


@pytest.mark.parametrize(("name", "further"), [("global-augmentation", ""), ("one-fixed-mask", ENDS_RANKS)])
def test_nothing_differs_where_all_follows_a_seed_and_a_process_that_ends_is_no_difference(name, further, tmp_path):
    assert difference(tmp_path, name, LOOK_WRONG[name] + further) is None

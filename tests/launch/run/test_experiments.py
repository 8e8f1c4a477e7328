"""Mistakes in a user's file are found without training, each with its cause, and none in sound models."""

import dataclasses

import pytest

from common.config import Settings
from launch.run import experiments
from tests.support import planted_bugs
from tests.support.mistakes import refused
from tests.support.planted_bugs import BugIn, written
from tests.support.sound_models import SOUND
from tests.support.sound_traps import LOOK_WRONG
from tests.support.user_models import VECTORS

BUGS = [(kind, name, bug) for kind, bugs in planted_bugs.IN_ONE_PROCESS.items() for name, bug in bugs.items()]
SOUND_MODELS = SOUND | LOOK_WRONG


def examination(folder, name, text):
    return experiments.examine(Settings(model=str(written(folder, name, text))))


@pytest.mark.parametrize(("kind", "name", "bug"), BUGS, ids=[name for _, name, _ in BUGS])
def test_each_mistake_is_found_with_its_cause_and_no_other(kind, name, bug, tmp_path):
    examined = examination(tmp_path, name, bug.text)
    causes = {BugIn.FILE: list(examined.wrong.values()), BugIn.RANKS: examined.of_ranks, BugIn.SHARDS: [examined.of_shards]}
    assert [cause.startswith(bug.cause) for cause in causes.pop(kind)] == [True]
    # A state may be one of the evaluation too.
    assert not any(any(others) for other, others in causes.items() if (kind, other) != (BugIn.RANKS, BugIn.FILE))


@pytest.mark.parametrize("name", SOUND_MODELS)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_nothing_is_found_in_sound_models(name, tmp_path):
    examined = examination(tmp_path, name, SOUND_MODELS[name])
    assert (examined.wrong, examined.of_ranks) == ({}, [])
    # What a library does of its own makes these differ.
    of_shards = {
        "clamped-weights": "the forward pass changes weight, of which", "mean-teacher": "the forward pass changes teacher.weight",
        "experts": "in steps that do not use experts.0.bias",
    }  # fmt: skip
    assert (examined.of_shards or "")[: len(of_shards.get(name, "any"))] == of_shards.get(name, "")
    # No sample of the first ones goes to some of the experts.
    without_gradient = {"experts": examined.without_gradient[:2], "unused-parameters": ["forgotten.weight", "forgotten.bias"]}
    assert examined.without_gradient[:2] == without_gradient.get(name, [])
    assert bool(examined.without_gradient) == (name in without_gradient)


def test_a_model_that_makes_its_parameters_float32_is_refused(tmp_path):
    text = VECTORS + "\nclass Net(nn.Linear):\n    def forward(self, x):\n        return super(Net, self.float()).forward(x.float())\n"
    with refused("--verify trains in float64, and the forward pass gives weight, bias another type; let them"):
        examination(tmp_path, "converted", text + "\ndef model():\n    return Net(4, 3)\n")


def test_a_workload_of_the_table_is_examined_as_a_file_is():
    examined = experiments.examine(dataclasses.replace(Settings(), workload="cnn"))
    assert (examined.wrong, examined.of_ranks, examined.of_shards, examined.without_gradient) == ({}, [], None, [])

"""A model of the user's own: what its file may have, and what follows from it."""

import os
import sys

import numpy as np
import pytest

from common import workloads
from common.cost import parallelism
from common.model import model_file, user_checks
from common.model.description import parameters_of
from common.model.user_model import UserModel
from tests.support.mistakes import refused
from tests.support.sound_models import SOUND
from tests.support.user_models import BEGINNING, PLAIN, settings_of, written


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_models_of_many_kinds_pass_the_checks_and_their_operations_are_counted(name, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(BEGINNING + SOUND[name])
    model = UserModel(str(path), None)
    user_checks.check(model)
    assert model.training_flops() > 0


def test_a_sound_file_is_a_workload_with_its_name_its_parameters_and_its_flops(tmp_path):
    settings = workloads.resolve(settings_of(written(tmp_path), model_args='{"width": 6}'), 1)
    assert (settings.workload, settings.batch_size, settings.epochs, settings.target) == ("mine", 32, 10, None)
    model = workloads.workload_of(settings).model
    assert {name: initial.shape for name, initial in parameters_of(model).items()} == {"weight": (6, 3), "bias": (6,)}
    # A product in the forward pass and one in the backward pass, since inputs have no gradient.
    assert model.training_flops() == 2 * 2 * 3 * 6


def test_variables_that_a_file_removes_are_there_for_libraries(tmp_path, monkeypatch):
    monkeypatch.setenv("PMI_RANK", "1")
    clearing = "\nimport os\nos.environ.clear()\nplain = loss\ndef loss(*batch):\n    os.environ.clear()\n    return plain(*batch)\n"
    user_checks.check(UserModel(str(written(tmp_path, PLAIN + clearing)), None))
    assert os.environ["PMI_RANK"] == "1"


def test_flops_that_the_counter_does_not_see_are_not_known(tmp_path):
    text = PLAIN.replace("return nn.Linear(3, width)", "return Scale()") + (
        "\nclass Scale(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.by = nn.Parameter(torch.ones(3))\n"
        "    def forward(self, x):\n        return torch.cat([x * self.by] * 2, 1)\n"
    )
    assert UserModel(str(written(tmp_path, text)), None).training_flops() is None


def test_a_file_of_a_package_imports_from_it_and_has_its_digest(tmp_path, monkeypatch):
    def model_in(folder, helper):
        package = tmp_path / folder / "nets_of_a_test"
        (package / "parts").mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "parts/__init__.py").touch()
        (package / "helper.py").write_text(helper)
        path = written(package / "parts", PLAIN.replace("import torch\n", "import torch\nfrom ..helper import WIDTH\n", 1))
        for name in [name for name in sys.modules if name.startswith("nets_of_a_test")]:
            monkeypatch.delitem(sys.modules, name)
        return path, model_file.read(str(path), None)

    path, file = model_in("a", "WIDTH = 4\n")
    assert file.content.WIDTH == 4
    assert file.digest == model_in("b", "WIDTH = 4\n")[1].digest != model_in("c", "WIDTH = 5\n")[1].digest
    monkeypatch.syspath_prepend(tmp_path / "a")
    monkeypatch.delitem(sys.modules, "nets_of_a_test")
    assert model_file.located("nets_of_a_test.parts.mine") == path


def test_the_digest_is_that_of_the_sources_and_arguments_wherever_they_lie(tmp_path):
    def identity(folder, helper="SIZE = 4\n", arguments=None):
        (tmp_path / folder).mkdir()
        # Its name is part of the source of the file.
        (tmp_path / folder / "helper_of_a_test.py").write_text(helper)
        path = written(tmp_path / folder, PLAIN.replace("import torch\n", "import torch\nimport helper_of_a_test\n", 1))
        sys.modules.pop("helper_of_a_test", None)
        return UserModel(str(path), arguments).identity()

    plain = identity("here")
    assert plain == identity("there")
    assert plain["arguments"] == {}
    assert plain not in (identity("changed", helper="SIZE = 5\n"), identity("sized", arguments='{"width": 8}'))


def test_the_largest_repeated_blocks_are_the_layers_where_the_file_names_none():
    from torch import nn

    def block(width=4):
        return nn.Sequential(nn.Linear(width, width), nn.ReLU())

    def layers_of(module):
        return model_file.repeated_blocks(module)

    small, large = [block(), block(), block()], [block(8), block(8)]
    assert layers_of(nn.Sequential(*small, nn.Linear(4, 8), *large, block(2))) == large
    assert layers_of(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))) == []
    assert layers_of(nn.Sequential(nn.Sequential(block()), nn.Linear(4, 2))) == []
    tied = [block(), block()]
    tied[1][0].weight = tied[0][0].weight
    assert layers_of(nn.Sequential(*tied)) == []


@pytest.mark.parametrize(
    ("options", "function"), [({"optimizer": "adam"}, "optimizer"), ({"momentum": 0.1}, "optimizer"), ({"schedule": "cosine"}, "scheduler")]
)
def test_what_a_function_of_the_file_decides_is_no_option(options, function, tmp_path):
    functions = "\nLEARNING_RATE = 0.1\ndef optimizer(p):\n    return torch.optim.SGD(p)\ndef scheduler(*_):\n    return None\n"
    settings = settings_of(written(tmp_path, PLAIN + functions), **options)
    with refused(f"--{next(iter(options))} is not for mine, which has a{'n' * (function == 'optimizer')} {function}(); leave it out"):
        workloads.resolve(settings, 1)


def test_the_schedule_of_a_file_is_that_of_its_scheduler_scaled_and_warmed_up(tmp_path):
    one_cycle = "torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=num_steps, cycle_momentum=False)"
    path = written(tmp_path, PLAIN + f"\nLEARNING_RATE = 0.02\ndef scheduler(optimizer, num_steps):\n    return {one_cycle}\n")
    settings = workloads.resolve(settings_of(path, epochs=5, scaling="strong"), 1)
    rates = workloads.learning_rates(settings, 4, 1.0)
    assert (rates.shape, rates.max(), rates.argmax()) == ((5, 4), pytest.approx(0.1), 5)
    assert rates[0, 0] == pytest.approx(0.1 / 25)
    scaled = workloads.learning_rates(settings, 4, 4.0)
    np.testing.assert_allclose(scaled[1:], 4 * rates[1:])
    np.testing.assert_allclose(scaled[0], rates[0] * [1.75, 2.5, 3.25, 4])
    assert workloads.digest(settings, "data") != workloads.digest(settings_of(path, epochs=6), "data")
    with refused("--schedule is not for"):
        workloads.resolve(settings_of(path, schedule="cosine"), 1)


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        ("horovod_tf", "the model is PyTorch's"),
        ("single_keras", "the model is PyTorch's"),
        ("pipeline", "has no parts for stages"),
        ("tensor_parallel", "does not train"),
    ],
)
def test_backends_that_cannot_train_it_say_why(backend, reason, tmp_path):
    assert reason in parallelism.problem(backend, settings_of(written(tmp_path)), 2)

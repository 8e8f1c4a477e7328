"""A model of the user's own: what its file may have, and the one line about each mistake."""

import re
import sys
import threading

import numpy as np
import pytest

from common import workloads
from common.config import Settings
from common.cost import parallelism
from common.data import datasets
from common.declarations import ROOT
from common.model import model_file, user_data, user_model
from common.model.description import parameters_of
from common.model.user_model import UserModel
from tests.support.mistakes import refused

EXAMPLE = ROOT / "frameworks/own_model/rings.py"
PLAIN = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

def model(width=4):
    return nn.Linear(3, width)

def data():
    inputs = torch.arange(60.0).reshape(20, 3) / 60
    targets = torch.arange(20) % 4
    return TensorDataset(inputs, targets), TensorDataset(inputs, targets)

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)

def metric(outputs, targets):
    return (outputs.argmax(1) == targets).sum()
"""


def written(folder, text=PLAIN, name="mine.py"):
    path = folder / name
    path.write_text(text)
    return path


def settings_of(path, **settings):
    return Settings(model=str(path), **settings)


def line_with(text, part):
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


# What is put in the place of what, the line of the mistake by its text, and the message.
BROKEN = {
    "syntax": (("def loss(", "def loss[("), "def loss[(", "SyntaxError: "),
    "import": (("import torch\n", "import torch\nimport there_is_none\n"), "there_is_none", "ModuleNotFoundError: No module named"),
    "import-fails": (("\ndef model", "\n1 / 0\ndef model"), "1 / 0", "ZeroDivisionError: division by zero"),
    "exits": (("\ndef model", "\nraise SystemExit(3)\ndef model"), "raise SystemExit", "SystemExit: 3"),
    "no-model": (("def model", "def net"), None, "it has no model(); add def model(): returns an nn.Module"),
    "no-data": (("def data", "def samples"), None, "it has no data(); add def data()"),
    "no-loss": (("def loss", "def criterion"), None, "it has no loss(); add def loss(outputs, targets)"),
    "constant-for-a-function": (
        ("def loss(outputs, targets)", "loss = 1\ndef criterion(outputs, targets)"),
        "loss = 1",
        "loss is no function",
    ),
    "model-fails": (("nn.Linear(3, width)", "nn.Linear(3, wide)"), "wide", "NameError: name 'wide' is not defined"),
    "no-module": (("return nn.Linear(3, width)", "return 5"), "def model", "model() returns int; it must return an nn.Module"),
    "keras-model": (
        ("return nn.Linear(3, width)", "return type('Net', (), {'__module__': 'keras.src.models.model'})()"),
        "def model",
        model_file.OF_KERAS,
    ),
    "no-parameters": (("nn.Linear(3, width)", "nn.ReLU()"), "def model", "a module without parameters to train"),
    "lazy-layer": (
        ("nn.Linear(3, width)", "nn.LazyLinear(width)"),
        "def model",
        "model() returns weight without a shape, as of a lazy layer",
    ),
    "fails-in-evaluation": (
        (
            "nn.Linear(3, width)",
            "type('Net', (nn.Linear,), {'forward': lambda net, x: nn.Linear.forward(net, x) * (1 // net.training)})(3, 4)",
        ),
        "net.training",
        "ZeroDivisionError",
    ),
    "whole-parameters": (
        (
            "    return nn.Linear(3, width)",
            "    net = nn.Linear(3, width)\n    net.step = nn.Parameter(torch.tensor(1), False)\n    return net",
        ),
        "def model",
        "model() returns step of torch.int64 on cpu; it must be floating point, on the CPU",
    ),
    "one-data-set": (
        ("TensorDataset(inputs, targets), TensorDataset(inputs, targets)", "TensorDataset(inputs, targets)"),
        "def data",
        "two data",
    ),
    "no-len": (("return TensorDataset(inputs, targets),", "return iter(inputs),"), "def data", "must have len() and [i]"),
    "empty": (
        ("TensorDataset(inputs, targets), TensorDataset", "[], TensorDataset"),
        "def data",
        "the training data set of data() is empty",
    ),
    "no-number-of-samples": (
        ("return TensorDataset(inputs, targets),", "return type('D', (), {'__len__': lambda _: -1, '__getitem__': None})(),"),
        "def data",
        "ValueError: __len__() should return >= 0",
    ),
    "no-pickle": (("return TensorDataset(inputs, targets),", "return [(inputs[0], lambda: 1)],"), "def data", "pickle"),
    "collate-of-three": (
        ("def metric", "def collate(samples):\n    return 1, 2, 3\n\ndef metric"),
        "def collate",
        "collate() returns (1, 2, 3); it must return a pair (inputs, targets)",
    ),
    "no-pair": (("return TensorDataset(inputs, targets),", "return inputs,"), "def data", "a sample is a pair (inputs, target)"),
    "random-samples": (
        ("TensorDataset(inputs, targets), Ten", "Noisy(), Ten"),
        "def data",
        "data()[i] differs from call to call; draw from PyTorch's, NumPy's or Python's generator, which are seeded",
    ),
    "unequal-samples": (
        ("TensorDataset(inputs, targets), Ten", "[(torch.ones(i), 0) for i in range(9)], Ten"),
        "def data",
        "RuntimeError: stack expects each tensor to be equal size",
    ),
    "shapes": (("nn.Linear(3, width)", "nn.Linear(5, width)"), "def model", "RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
    "other-device": (("return nn.functional", "outputs = outputs.to('meta')\n    return nn.functional"), "return nn.functional", "meta"),
    "loss-of-two-dimensions": (
        ("return nn.functional.cross_entropy(outputs, targets)", "return outputs"),
        "def loss",
        "of shape (8, 4); return",
    ),
    "loss-without-gradient": (
        ("(outputs, targets)\n\ndef metric", "(outputs.detach(), targets)\n\ndef metric"),
        "def loss",
        "without a gradient",
    ),
    "loss-is-a-number": (
        ("(outputs, targets)\n\ndef metric", "(outputs, targets).item()\n\ndef metric"),
        "def loss",
        "return a tensor with one",
    ),
    "sum": (("outputs, targets)\n\ndef m", "outputs, targets, reduction='sum')\n\ndef m"), "def loss", "loss() is a sum over the samples"),
    "metric-by-sample": ((".sum()", ""), "def metric", "metric() returns tensor("),
    "target-without-metric": (("def metric", "TARGET = 0.5\n\ndef share"), "TARGET", "TARGET needs metric(outputs, targets)"),
    "target-too-large": (("def metric", "TARGET = 94\n\ndef metric"), "TARGET", "TARGET is 94; it must be a share above 0, at most 1"),
    "no-scheduler": (
        ("def metric", "def scheduler(optimizer, num_steps):\n    return num_steps\n\ndef metric"),
        "def scheduler",
        "scheduler() returns int; it must return one of torch.optim.lr_scheduler",
    ),
    "scheduler-of-losses": (
        ("def metric", "def scheduler(o, n):\n    return torch.optim.lr_scheduler.ReduceLROnPlateau(o)\n\ndef metric"),
        "def scheduler",
        "missing 1 required positional argument: 'metrics'",
    ),
    "scheduler-of-momentum": (
        ("def metric", "def scheduler(o, n):\n    return torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=n)\n\ndef metric"),
        "def scheduler",
        "scheduler() may change the learning rate alone",
    ),
    "layers-of-another": (
        ("def metric", "def layers(model):\n    return [nn.Linear(3, 4)]\n\ndef metric"),
        "def layers",
        "layers() must return a list of modules inside of the model",
    ),
    "layers-is-the-model": (
        ("def metric", "def layers(model):\n    return [model]\n\ndef metric"),
        "def layers",
        "layers() must return a list of modules inside of the model",
    ),
    "batch-size": (
        ("def metric", "BATCH_SIZE = 0.5\n\ndef metric"),
        "BATCH_SIZE",
        "BATCH_SIZE is 0.5; it must be a whole number from 1 on",
    ),
    "optimizer-without-rate": (
        ("def metric", "def optimizer(p):\n    return torch.optim.AdamW(p)\n\ndef metric"),
        "def optimizer",
        "LEARNING_RATE",
    ),
    "unknown-state": (
        ("def metric", "LEARNING_RATE = 0.1\ndef optimizer(p):\n    return torch.optim.Rprop(p)\n\ndef metric"),
        "def optimizer",
        "optimizer() returns Rprop, whose prev, step_size cannot be begun anew; use another",
    ),
    "several-rates": (
        (
            "def metric",
            "LEARNING_RATE = 0.1\ndef optimizer(p):\n    a, b = p\n"
            "    return torch.optim.SGD([{'params': [a], 'lr': 0.2}, {'params': [b]}], LEARNING_RATE)\n\ndef metric",
        ),
        "def optimizer",
        "optimizer() has several learning rates, and the schedule sets one",
    ),
    "no-optimizer": (
        ("def metric", "LEARNING_RATE = 0.1\ndef optimizer(p):\n    return 5\n\ndef metric"),
        "def optimizer",
        "optimizer() returns int; it must return a torch.optim.Optimizer",
    ),
}
NOISY = """
class Noisy:
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.rand(3, generator=self.generator), 1

    generator = torch.Generator()
"""
AUGMENTED = (
    PLAIN.replace("TensorDataset(inputs, targets), Ten", "Augmented(), Ten")
    + """
import random
import numpy as np

class Augmented:
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.tensor([torch.rand(()), np.random.rand(), random.random()]) + index, index % 4
"""
)


@pytest.mark.parametrize("name", BROKEN)
def test_a_mistake_is_one_line_with_its_place(name, tmp_path):
    (old, new), place, message = BROKEN[name]
    assert old in PLAIN
    text = PLAIN.replace(old, new, 1) + NOISY
    with pytest.raises(model_file.UserError) as refusal:
        datasets.loader(workloads.resolve(settings_of(written(tmp_path, text)), 1))
    printed = str(refusal.value)
    where = "mine.py" if place is None else f"mine.py, line {line_with(text, place)}"
    assert re.match(rf"{re.escape(where)}: .*{re.escape(message)}", printed), printed
    assert "\n" not in printed


def test_data_that_have_gradients_or_another_type_are_read(tmp_path):
    text = PLAIN.replace("reshape(20, 3) / 60", "reshape(20, 3).bfloat16().requires_grad_()")
    settings = workloads.resolve(settings_of(written(tmp_path, text)), 1)
    samples = datasets.loader(settings)(None).train
    inputs, _ = user_data.in_precision(samples.batch(np.array([3, 4])), "fp32")
    assert (inputs.tolist(), inputs.requires_grad) == ([[9, 10, 11], [12, 13, 14]], False)


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


@pytest.mark.parametrize(
    ("loaded", "message"), [("keras", f"mine.py, line 2: {model_file.OF_KERAS}"), ("numpy", "mine.py: it does not import torch")]
)
def test_a_file_without_pytorch_is_refused(loaded, message, tmp_path, monkeypatch):
    for name in ("torch", *model_file.KERAS_PACKAGES):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, loaded, np)
    with refused(message):
        model_file.read(str(written(tmp_path, "\ndef model():\n    pass\n")), None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_args": "{width: 5}"}, "--model-args is '{width: 5}'; give a JSON object"),
        ({"model_args": '{"depth": 5}'}, "mine.py, line 6: TypeError: model() got an unexpected keyword argument 'depth'"),
        ({"dataset": "digits"}, "--dataset is not for --model"),
        ({"target": 0.5}, "--target is not for"),
    ],
)
def test_settings_that_a_file_does_not_take_are_refused(settings, message, tmp_path):
    with refused(message):
        datasets.loader(workloads.resolve(settings_of(written(tmp_path), **settings), 1))


def test_a_file_that_is_not_there_and_arguments_without_one_are_refused():
    with refused("--model nowhere.py is neither a file nor a module"):
        workloads.workload_of(Settings(model="nowhere.py"))
    with refused("--model-args is for --model"):
        workloads.workload_of(Settings(model_args="{}"))


def test_recompute_needs_layers(tmp_path):
    def problem(text):
        return parallelism.problem("single", settings_of(written(tmp_path, text, f"mine{len(text)}.py"), recompute=True), 1)

    assert problem(PLAIN).startswith("--recompute would save no memory of mine")
    with_layers = PLAIN.replace("nn.Linear(3, width)", "nn.Sequential(nn.Linear(3, width))")
    assert problem(with_layers + "\ndef layers(model):\n    return [model[0]]\n") is None


def test_a_sound_file_is_a_workload_with_its_name_its_parameters_and_its_flops(tmp_path):
    settings = workloads.resolve(settings_of(written(tmp_path), model_args='{"width": 6}'), 1)
    assert (settings.workload, settings.batch_size, settings.epochs, settings.target) == ("mine", 32, 10, None)
    model = workloads.workload_of(settings).model
    assert {name: initial.shape for name, initial in parameters_of(model).items()} == {"weight": (6, 3), "bias": (6,)}
    # A product in the forward pass and one in the backward pass, since inputs have no gradient.
    assert model.training_flops() == 2 * 2 * 3 * 6


@pytest.mark.parametrize(
    "made", ["AdamW(p, amsgrad=True)", "RMSprop(p, momentum=0.9, centered=True)", "Adadelta(p)", "SGD(p)", "Adamax(p)", "NAdam(p)"]
)
def test_optimizers_whose_state_can_begin_anew_are_taken(made, tmp_path):
    text = PLAIN + f"\nLEARNING_RATE = 0.1\ndef optimizer(p):\n    return torch.optim.{made}\n"
    user_model.check(UserModel(str(written(tmp_path, text)), None))


def test_parameters_have_the_numbers_that_ddp_gives_them(tmp_path):
    text = PLAIN.replace("    return nn.Linear(3, width)", "    net = nn.Linear(3, width)\n    net.head = nn.Linear(2, 2)\n    return net")
    frozen = text.replace("    return net", "    net.bias.requires_grad = False\n    return net")
    assert user_model.trained(UserModel(str(written(tmp_path, frozen)), None)) == ["weight", "head.weight", "head.bias"]


def test_flops_that_the_counter_does_not_see_are_not_known(tmp_path):
    text = PLAIN.replace("return nn.Linear(3, width)", "return Scale()") + (
        "\nclass Scale(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.by = nn.Parameter(torch.ones(3))\n"
        "    def forward(self, x):\n        return torch.cat([x * self.by] * 2, 1)\n"
    )
    assert UserModel(str(written(tmp_path, text)), None).training_flops() is None


def test_the_digest_is_that_of_the_sources_and_arguments_wherever_they_lie(tmp_path):
    def digest(folder, text=PLAIN, helper="SIZE = 4\n", **settings):
        (tmp_path / folder).mkdir()
        module = f"helper_{folder}"
        (tmp_path / folder / f"{module}.py").write_text(helper)
        path = written(tmp_path / folder, text.replace("import torch\n", f"import torch\nimport {module}\n".replace(module, module), 1))
        model = UserModel(str(path), settings.get("model_args"))
        return model.identity()

    # The name of the module beside the file is part of its source.
    plain = digest("a")
    assert plain != digest("b", helper="SIZE = 5\n")
    assert plain["arguments"] == {}
    (tmp_path / "c").mkdir()
    (tmp_path / "d").mkdir()
    first, moved, changed = (
        UserModel(str(written(tmp_path / folder, text)), arguments).identity()
        for folder, text, arguments in (("c", PLAIN, None), ("d", PLAIN, None), ("c", PLAIN, '{"width": 8}'))
    )
    assert first == moved != changed


def test_batches_of_an_evaluation_have_no_padding_and_a_rank_without_samples_has_one_of_weight_0(tmp_path):
    from common.ranks.watchdog import Watchdog
    from common.training.batches import SampleBatches

    settings = workloads.resolve(settings_of(written(tmp_path)), 1)
    data = datasets.loader(settings)(None)
    indices, weights = np.array([[3, 4, 5], [6, 0, 1], [0, 1, 2]]), np.array([[1.0, 1, 1], [1, 0, 0], [0, 0, 0]])
    batches = list(SampleBatches(data.test, indices, weights, np.zeros(3), settings, Watchdog(0, None)))
    assert [batch.weights.tolist() for batch in batches] == [[1, 1, 1], [1], [0]]
    assert [batch.targets.tolist() for batch in batches] == [[3, 0, 1], [2], [0]]


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


def test_random_numbers_of_a_sample_follow_from_seed_epoch_and_index(tmp_path):
    from common.ranks.watchdog import Watchdog
    from common.training.batches import SampleBatches

    def inputs(rows, epoch, seed=1):
        settings = workloads.resolve(settings_of(written(tmp_path, AUGMENTED), seed=seed), 1)
        samples, weights = datasets.loader(settings)(None).train, np.ones(np.shape(rows))
        batches = SampleBatches(samples, np.array(rows), weights, np.zeros(len(rows)), settings, Watchdog(0, None), epoch)
        return np.concatenate([batch.inputs for batch in batches])

    whole = inputs([[3, 0], [4, 7]], epoch=1)
    # Another number of ranks, another order.
    np.testing.assert_array_equal(np.concatenate([inputs([[7], [3]], epoch=1), inputs([[4], [0]], epoch=1)]), whole[[3, 0, 2, 1]])
    assert len(np.unique(whole % 1)) == whole.size
    assert not np.isin(whole, inputs([[3, 0], [4, 7]], epoch=2)).any()
    assert not np.isin(whole, inputs([[3, 0], [4, 7]], epoch=1, seed=2)).any()


def test_what_a_file_draws_leaves_the_generator_of_dropout_as_it_was(tmp_path):
    import torch

    file = model_file.read(str(written(tmp_path, AUGMENTED)), None)
    before = torch.get_rng_state()
    model_file.build(file, seed=5)
    train, _ = user_data.data_of(file)
    assert user_data.draws(file, train)
    assert not user_data.draws(file, [(1, 2)])
    user_data.seeded_sample(file, train, 3, 1)
    assert torch.equal(torch.get_rng_state(), before)


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


COLLATED = (
    PLAIN
    + """
def collate(samples):
    inputs, targets = zip(*samples)
    return torch.stack(inputs) + torch.rand(()), torch.stack(targets)
"""
)
# Of its samples the first draw nothing.
RARELY_AUGMENTED = AUGMENTED.replace(
    "    def __getitem__(self, index):\n",
    "    def __getitem__(self, index):\n        if index < 12:\n            return torch.zeros(3) + index, 0\n",
)


def read_with(path, rows, epoch=1, seed=1, **others):
    """Returns the inputs of batches of these rows."""
    import torch

    from common.ranks.watchdog import Watchdog
    from common.training.batches import SampleBatches

    settings = workloads.resolve(settings_of(path, seed=seed, **others), 1)
    samples, weights = datasets.loader(settings)(None).train, np.ones(np.shape(rows))
    torch.rand(np.random.randint(1, 9))
    batches = list(SampleBatches(samples, np.array(rows), weights, np.zeros(len(rows)), settings, Watchdog(0, None), epoch))
    return [batch.inputs.numpy() for batch in batches]


def test_random_numbers_of_collate_follow_from_seed_epoch_and_the_samples_of_a_batch(tmp_path):
    path = written(tmp_path, COLLATED)
    first, second = read_with(path, [[3, 0], [4, 7]])
    np.testing.assert_array_equal(read_with(path, [[4, 7], [3, 0]]), [second, first])
    for others in (read_with(path, [[3, 0]], epoch=2), read_with(path, [[3, 0]], seed=2), read_with(path, [[3, 1]])):
        assert (others[0][0] != first[0]).all()
    assert (
        datasets.loader(workloads.resolve(settings_of(path), 1))(None).digest
        == datasets.loader(workloads.resolve(settings_of(path), 1))(None).digest
    )


def test_samples_that_draw_late_are_seeded_too(tmp_path):
    path = written(tmp_path, RARELY_AUGMENTED)
    (whole,) = read_with(path, [[2, 15, 3, 13]])
    np.testing.assert_array_equal(read_with(path, [[2, 3]])[0], whole[[0, 2]])
    np.testing.assert_array_equal(np.concatenate(read_with(path, [[13], [15]])), whole[[3, 1]])
    assert len(np.unique(whole[[1, 3]] % 1)) == 6


def test_threads_read_the_same_batches_ahead_and_data_that_draw_are_refused(tmp_path, monkeypatch):
    rows, threads, sample = [[3, 0], [4, 7], [1, 2]], set(), user_data.sample

    def noted(*arguments):
        threads.add(threading.current_thread().name)
        return sample(*arguments)

    expected = read_with(written(tmp_path), rows)
    with monkeypatch.context() as changed:
        changed.setattr(user_data, "sample", noted)
        np.testing.assert_array_equal(read_with(written(tmp_path), rows, num_workers=2), expected)
    assert any(name.startswith("reader") for name in threads)
    for name, text in (("augmented.py", AUGMENTED), ("collated.py", COLLATED)):
        with refused("--num-workers is for data that draw no random numbers, and those of the --model do; leave it out"):
            read_with(written(tmp_path, text, name), rows, num_workers=1)


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

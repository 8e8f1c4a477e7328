"""A mistake in a user's file is one line with its place, before a run."""

import re
import sys

import numpy as np
import pytest

from common import workloads
from common.config import Settings
from common.data import datasets
from common.model import model_file, user_model
from common.model.user_model import UserModel
from tests.support.mistakes import refused
from tests.support.user_models import PLAIN, settings_of, written

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
        "BATCH_SIZE is 0.5; it must be a whole number",
    ),
    "endless-training": (("def metric", "EPOCHS = 10**30\n\ndef metric"), "EPOCHS", "it must be at least 1 and at most 1000000000"),
    "infinite-rate": (
        ("def metric", "LEARNING_RATE = float('inf')\n\ndef metric"),
        "LEARNING_RATE",
        "LEARNING_RATE is inf; it must be above 0 and at most 1000000000",
    ),
    "parameters-not-numbers": (
        ("    return nn.Linear(3, width)", "    net = nn.Linear(3, width)\n    net.bias.data[0] = torch.nan\n    return net"),
        "def model",
        "model() returns bias with numbers that are NaN or infinite",
    ),
    "metric-not-a-number": (
        ("def metric(outputs, targets):", "def metric(outputs, targets):\n    return torch.tensor(torch.nan)"),
        "def metric",
        "metric() returns tensor(nan)",
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


def line_with(text, part):
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


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
        ({"model_args": "[" * 9000 + "]" * 9000}, "--model-args is '[[[[[[[[[["),
        ({"model_args": '{"depth": 5}'}, "mine.py, line 6: TypeError: model() got an unexpected keyword argument 'depth'"),
        ({"dataset": "digits"}, "--dataset digits is not for mine; choose from: file"),
        ({"data_dir": "data"}, "--data-dir is not for --model, whose data() reads its data itself"),
        ({"width": 64}, "--width is not for mine, whose model has no such size"),
        ({"target": 0.5}, "--target is not for"),
    ],
)
def test_settings_that_a_file_does_not_take_are_refused(settings, message, tmp_path):
    with refused(message):
        datasets.loader(workloads.resolve(settings_of(written(tmp_path), **settings), 1))


def test_a_file_that_is_not_there_and_arguments_without_one_are_refused():
    with refused("there is no workload 'nowhere.py'; choose from: cnn, "):
        workloads.workload_of(Settings(model="nowhere.py"))
    with refused("--model-args is for the model() of a file, and cnn has none; leave it out"):
        workloads.workload_of(Settings(model_args="{}"))


@pytest.mark.parametrize(
    "made", ["AdamW(p, amsgrad=True)", "RMSprop(p, momentum=0.9, centered=True)", "Adadelta(p)", "SGD(p)", "Adamax(p)", "NAdam(p)"]
)
def test_optimizers_whose_state_can_begin_anew_are_taken(made, tmp_path):
    text = PLAIN + f"\nLEARNING_RATE = 0.1\ndef optimizer(p):\n    return torch.optim.{made}\n"
    user_model.check(UserModel(str(written(tmp_path, text)), None))

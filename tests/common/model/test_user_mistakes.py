"""A mistake in a user's file is one line with its place, before a run."""

import re
import sys

import numpy as np
import pytest

from common import workloads
from common.config import Settings
from common.data import datasets
from common.model import model_file, user_checks
from common.model.user_model import UserModel
from tests.support.mistakes import refused
from tests.support.user_models import PLAIN, settings_of, written

LAYER, DATA = "nn.Linear(3, width)", "return TensorDataset(inputs, targets),"


def net(forward):
    """The code of a layer whose forward pass is another one."""
    return f"type('Net', (nn.Linear,), {{'forward': lambda net, {forward}}})(3, 4)"


# What is put in the place of what, a part of the line of the mistake, and the message.
BROKEN = [
    ("def loss(", "def loss[(", "def loss[(", "SyntaxError: "),
    ("import torch\n", "import torch\nimport there_is_none\n", "there_is_none", "ModuleNotFoundError: No module named"),
    ("\ndef model", "\nraise SystemExit(3)\ndef model", "raise SystemExit", "SystemExit: 3"),
    ("def model", "def net", None, "it has no model(); add def model(): returns an nn.Module"),
    ("def loss(outputs, targets)", "loss = 1\ndef criterion(outputs, targets)", "loss = 1", "loss is no function"),
    ("return nn.Linear(3, width)", "return 5", "def model", "model() returns int; it must return an nn.Module"),
    ("return nn.Linear(3, width)", "return type('Net', (), {'__module__': 'keras.src.models.model'})()", "def model", model_file.OF_KERAS),
    (LAYER, net("x, y: {}"), "def model", "called with the inputs alone, and forward() has a missing a required argument: 'y'"),
    (LAYER, "nn.Bilinear(3, 0, width)", "def model", "model() returns weight of shape (4, 3, 0), without a number"),
    (LAYER, "nn.ReLU()", "def model", "a module without parameters to train"),
    (
        LAYER,
        net("x: nn.functional.embedding(x[:, 0].long(), net.weight, sparse=True)").replace("(3, 4)", "(4, 4)"),
        "def model",
        "weight has a sparse gradient, which not every library averages; leave sparse=True out",
    ),
    (LAYER, "nn.LazyLinear(width)", "def model", "model() returns weight without a shape, as of a lazy layer"),
    (LAYER, net("x: nn.Linear.forward(net, x) * (1 // net.training)"), "net.training", "ZeroDivisionError"),
    (
        f"return {LAYER}",
        f"net = {LAYER}\n    net.step = nn.Parameter(torch.tensor(1), False)\n    return net",
        "def model",
        "model() returns step of torch.int64 on cpu; it must be floating point, on the CPU",
    ),
    ("TensorDataset(inputs, targets), TensorDataset(inputs, targets)", "TensorDataset(inputs, targets)", "def data", "two data"),
    (DATA, "return iter(inputs),", "def data", "must have len() and [i]"),
    (DATA, "return type('Stream', (torch.utils.data.IterableDataset,), {'__len__': len, '__iter__': iter})(),", "def data", "is Stream;"),
    (DATA, "return torch.utils.data.DataLoader(inputs),", "def data", "is DataLoader; it must have len() and [i]: return its data set, of"),
    ("TensorDataset(inputs, targets), TensorDataset", "[], TensorDataset", "def data", "the training data set of data() is empty"),
    (DATA, "return [(inputs[0], lambda: 1)],", "def data", "TypeError: default_collate"),
    (DATA, "return inputs,", "def data", "a sample is a pair (inputs, target)"),
    (DATA, "return Noisy(),", "def data", "data()[i] differs from call to call; draw from PyTorch's, NumPy's or Python's generator"),
    (LAYER, "nn.Linear(5, width)", "def model", "RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
    ("return nn.functional", "outputs = outputs[:, 9]\n    return nn.functional", "outputs[:, 9]", "IndexError: index 9 is out of bounds"),
    ("return nn.functional.cross_entropy(outputs, targets)", "return outputs", "def loss", "of shape (8, 4); return"),
    ("(outputs, targets)\n\ndef metric", "(outputs.detach(), targets)\n\ndef metric", "def loss", "without a gradient"),
    ("outputs, targets)\n\ndef m", "outputs, targets, reduction='sum')\n\ndef m", "def loss", "loss() is a sum over the samples"),
    (".sum()", "", "def metric", "metric() returns tensor("),
    ("def metric", "TARGET = 0.5\n\ndef share", "TARGET", "TARGET needs metric(outputs, targets)"),
    (LAYER, f"{LAYER}.apply(lambda net: net.bias.data.fill_(torch.nan))", "def model", "model() returns bias with numbers that are NaN or"),
    ("def metric(outputs, targets):", "def metric(*_):\n    return torch.tensor(torch.nan)", "def metric", "returns tensor(nan)"),
]
# What is added to the file, in whose first line or function is the mistake, and the message.
ADDED = [
    ("def collate(samples):\n    return 1, 2, 3", "collate() returns (1, 2, 3); it must return a pair (inputs, targets)"),
    ("TARGET = 94", "TARGET is 94; it must be a share above 0, at most 1"),
    ("def scheduler(o, n):\n    return n", "scheduler() returns int; it must return one of torch.optim.lr_scheduler"),
    ("def scheduler(o, n):\n    return torch.optim.lr_scheduler.ReduceLROnPlateau(o)", "scheduler() returns ReduceLROnPlateau"),
    ("def scheduler(o, n):\n    return torch.optim.lr_scheduler.OneCycleLR(o, 0.1, n)", "may change the learning rate alone"),
    ("def layers(model):\n    return [nn.Linear(3, 4)]", "layers() must return a list of modules inside of the model"),
    ("BATCH_SIZE = 0.5", "BATCH_SIZE is 0.5; it must be a whole number"),
    ("EPOCHS = 10**30", "it must be at least 1 and at most 1000000000"),
    ("LEARNING_RATE = float('inf')", "LEARNING_RATE is inf; it must be above 0 and at most 1000000000"),
    ("def optimizer(p):\n    return torch.optim.AdamW(p)", "LEARNING_RATE"),
    (
        "LEARNING_RATE = 0.1\ndef optimizer(p):\n    return torch.optim.Rprop(p)",
        "optimizer() returns Rprop, whose prev, step_size cannot be begun anew; use another",
    ),
    ("LEARNING_RATE = 0.1\ndef optimizer(p):\n    return 5", "optimizer() returns int; it must return a torch.optim.Optimizer"),
    (
        "LEARNING_RATE = 0.1\ndef optimizer(p):\n    return [torch.optim.SGD([q], 0.1) for q in p]",
        "optimizer() returns list; it must return a torch.optim.Optimizer (its groups of parameters may have an lr each, and",
    ),
]
NOISY = """
class Noisy:
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.rand(3, generator=self.generator), 1

    generator = torch.Generator()
"""


def expect_refused(text, place, message, folder):
    """Expects one line about a file with this text, with the number of the line that has the place."""
    with pytest.raises(model_file.UserError) as refusal:
        datasets.loader(workloads.resolve(settings_of(written(folder, text)), 1))
    number = next((number for number, line in enumerate(text.splitlines(), 1) if place and place in line), None)
    printed, where = str(refusal.value), f"mine.py, line {number}" if number else "mine.py"
    assert re.match(rf"{re.escape(where)}: .*{re.escape(message)}", printed), printed
    assert "\n" not in printed


@pytest.mark.parametrize(("old", "new", "place", "message"), BROKEN)
def test_a_mistake_is_one_line_with_its_place(old, new, place, message, tmp_path):
    assert old in PLAIN
    expect_refused(PLAIN.replace(old, new, 1) + NOISY, place, message, tmp_path)


@pytest.mark.parametrize(("code", "message"), ADDED)
def test_a_mistake_in_what_a_file_may_have_is_one_line_with_its_place(code, message, tmp_path):
    place = next((line for line in code.splitlines() if line.startswith("def ")), code)
    expect_refused(PLAIN + code + "\n", place, message, tmp_path)


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
    user_checks.check(UserModel(str(written(tmp_path, text)), None))

"""The metric of a user's file: sums over batches and ranks, what finish() makes of them, and which direction is better."""

import math

import numpy as np
import pytest
import torch

from common import workloads
from common.config import Settings
from common.data import datasets
from common.data.sharding import Shard, evaluation_shard
from common.model import model_file, user_checks, user_model
from common.model.user_model import UserModel
from common.ranks.watchdog import Watchdog
from common.trainer import Totals
from common.training.batches import SampleBatches
from frameworks.shared.pytorch import modules, steps
from tests.support.mistakes import refused

REGRESSION = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

TARGET, BATCH_SIZE = -50, 4

def model():
    return nn.Linear(3, 1)

def data():
    inputs = torch.randn(43, 3, generator=torch.Generator().manual_seed(1))
    samples = TensorDataset(inputs, 100 + inputs.sum(1, keepdim=True))
    return samples, TensorDataset(*samples[:21])

def loss(outputs, targets):
    return nn.functional.mse_loss(outputs, targets)

def metric(outputs, targets):
    return {"errors": ((outputs - targets) ** 2).sum(), "targets": (targets.sum(), (targets**2).sum(0))}

def finish(sums, num_samples):
    total, squares = sums["targets"]
    return 1 - sums["errors"] / (squares - total**2 / num_samples).squeeze()
"""
ABSOLUTE = (
    REGRESSION.split("def metric", maxsplit=1)[0]
    + """
LOWER_IS_BETTER = True

def metric(outputs, targets):
    return (outputs - targets).abs().sum()
"""
)


def written(folder, text):
    path = folder / "mine.py"
    path.write_text(text)
    return path


def metric_of(model, totals):
    return model.metric(totals.num_correct, totals.num_losses, totals.sums, math.isfinite(totals.loss))


def evaluated(path, degree):
    """Returns what the loop makes of the totals that so many ranks add up, and the module."""
    settings = workloads.resolve(Settings(model=str(path), precision="fp64"), 1)
    test = datasets.loader(settings)().test
    torch.manual_seed(0)
    module, criterion, totals = torch.nn.Linear(3, 1).double(), modules.Criterion(settings), []
    for shard in range(degree):
        indices, weights = evaluation_shard(len(test), 4, Shard(shard, degree))
        batches = SampleBatches(test, indices, weights, np.zeros(len(indices)), settings, Watchdog(0, None))
        totals.append(np.array(steps.evaluate(module, batches, torch.device("cpu"), criterion).values))
    return metric_of(workloads.workload_of(settings).model, Totals.of(sum(totals).tolist())), module, test.dataset.tensors


@pytest.mark.parametrize("degree", [1, 2, 5])
def test_the_number_of_the_sums_is_that_of_all_samples_at_every_number_of_ranks(degree, tmp_path):
    number, module, (inputs, targets) = evaluated(written(tmp_path, REGRESSION), degree)
    outputs, targets = module(inputs.double()).detach().numpy(), targets.double().numpy()
    assert number == pytest.approx(1 - ((outputs - targets) ** 2).sum() / ((targets - targets.mean()) ** 2).sum(), rel=1e-6)


@pytest.mark.parametrize("degree", [1, 3])
def test_a_sum_without_finish_is_divided_by_the_number_of_samples(degree, tmp_path):
    number, module, (inputs, targets) = evaluated(written(tmp_path, ABSOLUTE), degree)
    assert number == pytest.approx((module(inputs.double()) - targets.double()).abs().mean().item())


def test_a_file_has_its_direction_and_its_target_may_be_any_number(tmp_path):
    settings = workloads.resolve(Settings(model=str(written(tmp_path, ABSOLUTE)), target=120.0), 1)
    workload = workloads.workload_of(settings)
    assert (workload.metric, workload.lower_is_better, workload.target, settings.target) == ("metric", True, -50, 120)
    user_checks.check(workload.model)


ERRORS, TARGETS = "((outputs - targets) ** 2).sum()", "(targets.sum(), (targets**2).sum(0))"
NO_SUM, NO_NUMBER = "metric() is no sum over the samples of a batch", "finish() returns None; it must return a number"
BROKEN = {
    "no-metric": ("def metric", "def measure", "def finish", "finish() needs metric(outputs, targets)"),
    "no-number": ("    return 1 - sums", "    return None\n    return 1 - sums", "def finish", NO_NUMBER),
    "fails": ('sums["targets"]', 'sums["target"]', 'sums["target"]', "KeyError: 'target'"),
    "text": ("{" + '"errors": ', "{" + '"name": "R2", "errors": ', "def metric", "with finish() it must return sums"),
    "by-sample": (ERRORS, "(outputs - targets).flatten()", "def metric", NO_SUM),
    "mean": (f'{ERRORS}, "targets": {TARGETS}', 'targets.mean(), "targets": (targets.mean(), targets.mean(0))', "def metric", NO_SUM),
    "direction": ("TARGET, B", "LOWER_IS_BETTER = 1\nTARGET, B", "LOWER", "LOWER_IS_BETTER is 1; it must be True or False"),
    "infinite-target": ("TARGET, BATCH_SIZE = -50, 4", "TARGET = float('nan')", "TARGET", "TARGET is nan; it must be at least -1e+30"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_mistake_is_one_line_with_its_place(name, tmp_path):
    old, new, place, message = BROKEN[name]
    assert old in REGRESSION
    text = REGRESSION.replace(old, new, 1)
    line = next(number for number, line in enumerate(text.splitlines(), 1) if place in line)
    with refused(f"mine.py, line {line}: {message}" if name != "text" else message):
        user_checks.check(UserModel(str(written(tmp_path, text)), None))


ACCURACY = ABSOLUTE.replace("LOWER_IS_BETTER = True", "").replace("-50", "0.5")


@pytest.mark.parametrize(
    ("text", "sums", "message"),
    [
        (REGRESSION, (0.0, 1.0, 1.0), "finish() gives nan for the held-out samples; return a finite number"),
        (ACCURACY, (), "metric() gives 2 for the held-out samples; return the number of right ones"),
    ],
)
def test_a_number_that_no_target_can_be_compared_with_is_refused(text, sums, message, tmp_path):
    model = UserModel(str(written(tmp_path, text)), None)
    with refused(message):
        metric_of(model, Totals(1.0, 2.0, 1.0, sums))
    # Its training has diverged, which is said elsewhere.
    assert metric_of(model, Totals(float("nan"), 2.0, 1.0, sums)) != 0


def test_accuracy_is_still_a_share(tmp_path):
    path = written(tmp_path, ACCURACY)
    with refused("--target is 120; it must be above 0 and at most 1, such as 0.97"):
        workloads.resolve(Settings(model=str(path), target=120.0), 1)


def test_the_module_and_the_loss_draw_from_generators_that_are_seeded_by_rank(tmp_path):
    from common.ranks.launcher_variables import Ranks

    def drawn(rank):
        modules.build(workloads.resolve(Settings(model=str(written(tmp_path, REGRESSION))), 1), "cpu", Ranks(rank, 2))
        return float(torch.rand(())), np.random.rand(), model_file.random.random()

    assert drawn(0) == drawn(0)
    assert not set(drawn(0)) & set(drawn(1))


def test_sums_keep_their_nesting(tmp_path):
    model = UserModel(str(written(tmp_path, REGRESSION.replace("return 1 - sums", "return sums\n    return 1 - sums"))), None)
    assert user_model.num_sums(model) == 3
    with refused("finish() returns {'errors': tensor(1., dtype=torch.float64), 'targets': "):
        user_model.finished(model, [1.0, 2.0, 3.0], 4)

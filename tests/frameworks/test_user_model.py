"""A model of the user's own on PyTorch; tests/launch/run/test_verified_models.py trains it with every backend."""

import json

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from common.config import Settings
from common.declarations import ROOT
from common.ranks.launcher_variables import Ranks
from common.workloads import resolve
from frameworks.shared.horovod import horovod
from frameworks.shared.pytorch import modules, states, steps
from tests.support.mistakes import refused
from tests.support.running import BIN, completed

EXAMPLE = ROOT / "frameworks/own_model/rings.py"
# Without batch norm, whose statistics are those of a rank.
SOUND = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

LEARNING_RATE, BATCH_SIZE, TARGET, LOWER_IS_BETTER = 0.01, 8, 0.001, True

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(2, 2, 2)
        self.dense1 = nn.Linear(8, 4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, inputs):
        x, scale = inputs["image"], inputs["more"][0]
        return self.dense1(self.dropout(self.convolution(x).relu().flatten(1))) * scale[:, None]

def model():
    return Net()

def data():
    numbers = torch.Generator().manual_seed(3)
    samples = [({"image": torch.randn(2, 3, 3, generator=numbers), "more": (torch.rand(()) + 1,)}, index % 4) for index in range(43)]
    return samples[:40], samples[40:]

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)

def metric(outputs, targets):
    probabilities = outputs.softmax(1)
    return probabilities.sum(0), {"right": probabilities.gather(1, targets[:, None]).sum()}

def finish(sums, num_samples):
    of_classes, right = sums
    return -(right["right"] / num_samples).log() + of_classes[0] / of_classes.sum()

def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=0.1)
"""


@pytest.mark.matrix
def test_the_example_reaches_its_target(tmp_path):
    command = [BIN / "python", "-m", "frameworks.single", "--model", EXAMPLE, "--results", tmp_path, "--run-id", "r", "--machine", "m"]
    done = completed(*command, "--no-step-breakdown")
    record = json.loads((tmp_path / "m/r.json").read_text()) if not done.returncode else done.stderr
    assert (record["workload"], record["reached"], record["buffers_in_sync"]) == ("rings", True, True)
    assert record["settings"]["model"] == str(EXAMPLE)
    assert record["training_flops_per_sample"] > 0


def test_the_module_is_the_same_on_all_ranks_and_its_dropout_is_off_unless_asked_for(tmp_path):
    path = tmp_path / "sound.py"
    path.write_text(SOUND)

    def built(rank, **settings):
        return modules.build(resolve(Settings(model=str(path), **settings), 1), "cpu", Ranks(rank, 2))

    first, second, of_another_seed = built(0), built(1), built(0, seed=2)
    assert all(map(torch.equal, first.parameters(), second.parameters()))
    assert not all(map(torch.equal, first.parameters(), of_another_seed.parameters()))
    assert (first.dropout.p, built(0, dropout=True).dropout.p) == (0.0, 0.5)
    optimizer = steps.optimizer_for(resolve(Settings(model=str(path)), 1), first)
    assert (type(optimizer), optimizer.defaults["weight_decay"]) == (torch.optim.AdamW, 0.1)
    gathered = states.gather(first, optimizer)
    np.testing.assert_array_equal(gathered["convolution.weight"], first.convolution.weight.detach().numpy())


def test_nested_batches_are_cut_into_micro_batches():
    first, second = steps.chunks({"a": torch.arange(4), "b": (np.arange(4), ["text"])}, 2)
    assert (first["a"].tolist(), second["b"][0].tolist(), second["b"][1]) == ([0, 1], [2, 3], ["text"])


def test_the_norm_of_the_whole_gradient_is_clipped_before_the_update(tmp_path):
    path = tmp_path / "sound.py"
    path.write_text(SOUND.replace("torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=0.1)", "torch.optim.SGD(parameters, 1)"))
    clipped = tmp_path / "clipped.py"
    clipped.write_text(path.read_text() + "\nCLIP_NORM = 0.5\n")

    def length_of_step(path, size):
        settings = resolve(Settings(model=str(path), precision="fp64"), 1)
        module = modules.build(settings, "cpu", Ranks(0, 1))
        before = nn.utils.parameters_to_vector(module.parameters())
        for parameter in module.parameters():
            parameter.grad = torch.full_like(parameter, size)
        steps.optimizer_for(settings, module).step()
        return float((nn.utils.parameters_to_vector(module.parameters()) - before).detach().norm()) / before.numel() ** 0.5

    assert length_of_step(path, 3.0) == pytest.approx(3.0)
    assert length_of_step(clipped, 3.0) == pytest.approx(0.5 / 54**0.5, rel=1e-5)
    assert length_of_step(clipped, 0.01) == pytest.approx(0.01)


def test_parameters_that_are_not_contiguous_are_refused_by_horovod():
    module = nn.Sequential(nn.Conv2d(2, 2, 2))
    horovod.expect_contiguous(module)
    with refused("Horovod does not take 0.weight, which is not contiguous, as with channels_last"):
        horovod.expect_contiguous(module.to(memory_format=torch.channels_last))


def test_synchronized_batch_norm_is_refused_where_it_would_have_the_statistics_of_a_rank(tmp_path):
    path = tmp_path / "sound.py"
    path.write_text(SOUND.replace("nn.Conv2d(2, 2, 2)", "nn.Sequential(nn.Conv2d(2, 2, 2), nn.SyncBatchNorm(2))"))
    settings = resolve(Settings(model=str(path)), 1)
    modules.build(settings, "cpu", Ranks(0, 1))
    with refused("SyncBatchNorm needs torch.distributed, which this backend does not use"):
        modules.build(settings, "cpu", Ranks(0, 2))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with refused("SyncBatchNorm is for GPUs (--device cuda); on CPUs use BatchNorm"):
            modules.build(settings, "cpu", Ranks(0, 1))
    finally:
        dist.destroy_process_group()

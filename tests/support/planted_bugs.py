"""Mistakes that people make in models of their own, each with its cause as --verify says it."""

from enum import StrEnum
from typing import NamedTuple

from tests.support.user_models import BATCH_NORM, BEGINNING, PERCEPTRON, VECTORS


class Bug(NamedTuple):
    """A file, and a part of what is said of it."""

    text: str
    cause: str


class BugIn(StrEnum):
    """What is wrong: the file, whatever runs show; what ranks do of their own; or what a library does that shards the optimizer."""

    FILE = "file"
    RANKS = "ranks"
    SHARDS = "shards"


LABELS = """
class Labelled(torch.utils.data.Dataset):
    def __init__(self, inputs, targets):
        self.inputs, self.targets, self.num_reads = inputs, targets, 0

    def __len__(self):
        return len(self.targets)

def data():
    return Labelled(numbers(64, 4), classes(64)), Labelled(numbers(32, 4) + 1, classes(32))

def model():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
"""
# Found whatever the runs show.
WRONG = {
    "class-weights-of-the-batch": Bug(
        BATCH_NORM
        + """
def loss(outputs, targets):
    counts = torch.bincount(targets, minlength=3).to(outputs.dtype)
    return nn.functional.cross_entropy(outputs, targets, weight=1 / counts.clamp(min=1))
""",
        "loss() of a batch",
    ),
    "mean-over-tokens": Bug(
        """
def data():
    targets = classes(32, 6)
    targets[torch.arange(6) > torch.arange(32)[:, None] % 6] = -100
    return pairs(numbers(32, 6, 4), targets)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.norm(x.transpose(1, 2)).transpose(1, 2)).transpose(1, 2)
""",
        "loss() of a batch",
    ),
    "f1-times-n": Bug(
        BATCH_NORM
        + """
TARGET = 0.9

def metric(outputs, targets):
    predicted, actual = outputs.argmax(1) == 1, targets == 1
    return 2 * (predicted & actual).sum() / (predicted.sum() + actual.sum()).clamp(min=1) * len(targets)
""",
        "metric() of held-out samples",
    ),
    "buffer-of-the-evaluation": Bug(
        VECTORS
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.register_buffer("center", torch.zeros(4))

    def forward(self, x):
        if not self.training:
            self.center += 0.5 * (x.mean(0) - self.center)
        return self.head(x - self.center)
""",
        "evaluating a batch changes center, which the model then reads",
    ),
    "optimizer-that-changes-nothing": Bug(
        PERCEPTRON
        + """
LEARNING_RATE = 0.1

class Forgetful(torch.optim.SGD):
    def step(self, closure=None):
        pass

def optimizer(parameters):
    return Forgetful(parameters, lr=LEARNING_RATE)
""",
        "optimizer() never changes 0.weight, 0.bias, 2.weight, 2.bias",
    ),
    "held-out-samples-of-training": Bug(
        """
def data():
    train, _ = pairs(numbers(64, 4), classes(64))
    return train, torch.utils.data.Subset(train, range(32))

def model():
    return nn.Linear(4, 3)
""",
        "about 100% of the held-out samples have the inputs of a training sample",
    ),
    "samples-mixed-before-a-norm": Bug(
        VECTORS
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

    def forward(self, x):
        return self.body(x - x.mean(0))
""",
        "the outputs of a sample depend on the other samples",
    ),
    "gradients-clipped-behind-a-norm": Bug(
        VECTORS
        + """
def model():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    net[0].weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    return net
""",
        "the backward pass changes gradients before they are averaged over the ranks, as where they are clipped (hooks of 0.weight)",
    ),
    "gradients-clipped-as-they-come": Bug(
        PERCEPTRON.replace("return nn", "net = nn")
        + """
    def clip(parameter):
        parameter.grad.clamp_(-0.01, 0.01)

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(clip)
    return net
""",
        "the backward pass changes gradients before they are averaged over the ranks, as where they are clipped (hooks of 0.weight",
    ),
    "samples-that-count-their-reads": Bug(
        LABELS
        + """
def read(self, index):
    self.num_reads += 1
    return self.inputs[index] * (1 if self.num_reads < 100 else 2), self.targets[index]

Labelled.__getitem__ = read
""",
        "data()[i] differs from call to call",
    ),
    "rare-augmentation-without-a-seed": Bug(
        LABELS
        + """
import random
draw = random.Random()

def read(self, index):
    sign = -1 if index and draw.random() < 0.1 else 1
    return sign * self.inputs[index], self.targets[index]

Labelled.__getitem__ = read
""",
        "data()[i] differs from call to call",
    ),
}
# Asked for where a run differs on several ranks, and found in one process.
OF_RANKS = {
    "statistics-in-an-attribute": Bug(
        VECTORS
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.scale = nn.Linear(4, 3), 1.0

    def forward(self, x):
        self.scale = 0.9 * self.scale + 0.1 * x.detach().std()
        return self.head(x / self.scale)
""",
        "a step reads scale, which the steps before it have made from their samples",
    ),
    "statistics-in-a-buffer": Bug(
        VECTORS
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.register_buffer("center", torch.zeros(4))

    def forward(self, x):
        if self.training:
            self.center += 0.1 * (x.detach().mean(0) - self.center)
        return self.head(x - self.center)
""",
        "a step reads center, which the steps before it have made",
    ),
    "memory-of-features": Bug(
        VECTORS
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.past = nn.Linear(4, 3), []

    def forward(self, x):
        features = self.head(x)
        shift = torch.stack(self.past[-4:]).mean(0) if self.past else 0.0
        self.past.append(features.detach().mean(0))
        return features + shift
""",
        "a step reads past, which the steps before it have made",
    ),
    # A mistake for whoever wants the losses of one process: the draws of a rank are its own.
    "variational-autoencoder": Bug(
        """
def data():
    return TensorDataset(numbers(32, 4), numbers(32, 4)), TensorDataset(numbers(16, 4) + 1, numbers(16, 4) + 1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 4), nn.Linear(2, 4)

    def forward(self, x):
        mean, scale = self.encoder(x).chunk(2, 1)
        return self.decoder(mean + scale.exp() * torch.randn_like(mean) * self.training), mean, scale

def loss(outputs, targets):
    decoded, mean, scale = outputs
    return nn.functional.mse_loss(decoded, targets) + (mean**2 + (2 * scale).exp() - 2 * scale).mean()
""",
        "the model or loss() draws random numbers in training",
    ),
}
# What differs between processes or by the variables of ranks.
RANK = """
import os
rank, num_ranks = int(os.environ.get("PMI_RANK", 0)), int(os.environ.get("PMI_SIZE", 1))
"""
BY_RANK, BY_SIZE = "differ from rank 0 to rank 1", "differ from one process to 2 ranks"
OF_PROCESSES = {
    "layer-without-a-seed": Bug(
        VECTORS
        + """
def model():
    head, numbers = nn.Linear(4, 3), torch.Generator()
    numbers.seed()
    nn.init.normal_(head.weight, generator=numbers)
    return head
""",
        "the parameters of model() differ from process to process",
    ),
    "mask-without-a-seed": Bug(
        VECTORS
        + """
import numpy as np

class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)
        self.register_buffer("mask", torch.from_numpy(np.random.default_rng().random(4)).float())

    def forward(self, x):
        return super().forward(x * self.mask)
""",
        "the buffers of model() differ from process to process, so that they follow no seed (mask)",
    ),
    "mask-by-rank": Bug(
        RANK
        + VECTORS
        + """
class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)
        self.register_buffer("mask", torch.ones(4).index_fill(0, torch.tensor([rank]), 0))

    def forward(self, x):
        return super().forward(x * self.mask)
""",
        f"the buffers of model() {BY_RANK} (mask)",
    ),
    "model-seeded-by-rank": Bug(
        RANK
        + VECTORS
        + """
def model():
    torch.manual_seed(rank)
    return nn.Linear(4, 3)
""",
        f"the parameters of model() {BY_RANK}",
    ),
    "data-seeded-by-rank": Bug(
        RANK
        + """
def data():
    torch.manual_seed(rank)
    return pairs(torch.randn(32, 4), classes(32))

def model():
    return nn.Linear(4, 3)
""",
        f"the samples of data() {BY_RANK}",
    ),
    "data-cut-by-rank": Bug(
        """
import torch.distributed as dist

def data():
    size, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
    return pairs(numbers(64, 4)[rank::size], classes(64)[rank::size])

def model():
    return nn.Linear(4, 3)
""",
        "the numbers of samples of data() differ from one process to 2 ranks",
    ),
    "loss-by-size": Bug(
        RANK + PERCEPTRON + "\ndef loss(outputs, targets):\n    return nn.functional.cross_entropy(outputs, targets) / num_ranks\n",
        f"the losses of loss() {BY_SIZE}",
    ),
    "loss-by-the-process-group": Bug(
        PERCEPTRON
        + """
def loss(outputs, targets):
    group = torch.distributed
    return nn.functional.cross_entropy(outputs, targets) * (group.get_world_size() if group.is_initialized() else 1)
""",
        f"the losses of loss() {BY_SIZE}",
    ),
    "schedule-by-size": Bug(
        RANK
        + PERCEPTRON
        + """
LEARNING_RATE = 0.1

def scheduler(optimizer, num_steps):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: num_ranks)
""",
        f"the learning rates of scheduler() {BY_SIZE}",
    ),
    "decay-by-size": Bug(
        RANK
        + PERCEPTRON
        + """
LEARNING_RATE = 0.1

def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=LEARNING_RATE, weight_decay=0.1 * num_ranks)
""",
        f"the losses of training {BY_SIZE}",
    ),
    "noise-seeded-by-rank": Bug(
        RANK
        + VECTORS
        + """
class Net(nn.Linear):
    def forward(self, x):
        return super().forward(x + 0.1 * torch.randn(4, generator=torch.Generator().manual_seed(rank)))

def model():
    return Net(4, 3)
""",
        f"the outputs of the model {BY_RANK}",
    ),
    "a-rank-that-changes-later": Bug(
        RANK
        + VECTORS
        + """
class Net(nn.Linear):
    num_steps = 0

    def forward(self, x):
        self.num_steps += self.training
        return super().forward(x) * (2 if self.num_steps > 22 and rank == 1 else 1)

def model():
    return Net(4, 3)
""",
        f"the losses of training {BY_RANK}",
    ),
    "order-of-a-set": Bug(
        """
words = list({"red", "green", "blue", "black", "white", "grey", "pink", "cyan"})

def data():
    numbers_of_words = torch.tensor([words.index(word) for word in sorted(words)])
    inputs = nn.functional.one_hot(numbers_of_words.repeat(4), 8).float()
    return pairs(inputs, classes(32))

def model():
    return nn.Linear(8, 3)
""",
        "the samples of data() differ from process to process",
    ),
    "seeded-by-the-clock": Bug(
        """
import time

def data():
    stream = torch.Generator().manual_seed(time.time_ns() % 2**31)
    return pairs(torch.randn(32, 4, generator=stream), classes(32))

def model():
    return nn.Linear(4, 3)
""",
        "the samples of data() differ from process to process",
    ),
}
OF_SHARDS = {
    "clipping-optimizer": Bug(
        PERCEPTRON
        + """
LEARNING_RATE = 0.1

class Clipped(torch.optim.SGD):
    def step(self, closure=None):
        nn.utils.clip_grad_norm_([parameter for group in self.param_groups for parameter in group["params"]], 0.05)
        return super().step(closure)

def optimizer(parameters):
    return Clipped(parameters, lr=LEARNING_RATE)
""",
        "optimizer() updates a value by others",
    ),
    "layer-wise-optimizer": Bug(
        PERCEPTRON
        + """
LEARNING_RATE = 0.1

class Lars(torch.optim.Optimizer):
    def __init__(self, parameters, lr=0.1):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(group["lr"] * parameter.norm() / (parameter.grad.norm() + 1e-9) * parameter.grad)

def optimizer(parameters):
    return Lars(parameters, lr=LEARNING_RATE)
""",
        "optimizer() updates a value by others",
    ),
    "accumulating-optimizer": Bug(
        PERCEPTRON
        + """
LEARNING_RATE = 0.1

class EverySecond(torch.optim.SGD):
    num_calls = 0

    def zero_grad(self, set_to_none=True):
        if self.num_calls % 2 == 0:
            super().zero_grad(set_to_none)

    def step(self, closure=None):
        self.num_calls += 1
        if self.num_calls % 2 == 0:
            super().step(closure)

def optimizer(parameters):
    return EverySecond(parameters, lr=LEARNING_RATE)
""",
        "optimizer() leaves the parameters as they are in some steps",
    ),
}
IN_ONE_PROCESS = {BugIn.FILE: WRONG, BugIn.RANKS: OF_RANKS, BugIn.SHARDS: OF_SHARDS}


def written(folder, name, text):
    """Writes a file into a folder of its own: the digest of a model has the modules beside it."""
    path = folder / name / "mine.py"
    path.parent.mkdir()
    path.write_text(BEGINNING + text)
    return path

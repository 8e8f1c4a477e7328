"""Models of the user's own, in plain PyTorch: what their files have in common, and a plain one."""

from common.config import Settings

BEGINNING = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

def model():
    return Net()

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)

def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))

def pairs(inputs, targets):
    return TensorDataset(inputs, targets), TensorDataset(inputs.roll(1, -1), targets)

def classes(*shape):
    return torch.randint(0, 3, shape, generator=torch.Generator().manual_seed(2))
"""
IMAGES = """
def data():
    return pairs(numbers(16, 3, 8, 8), classes(16))
"""
VECTORS = """
def data():
    return pairs(numbers(32, 4), classes(32))
"""
PERCEPTRON = (
    VECTORS
    + """
def model():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
"""
)
# Its statistics are by rank, so that runs are compared with micro-batches too.
BATCH_NORM = (
    VECTORS
    + """
def model():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
"""
)
# What a file has at least, with a metric.
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

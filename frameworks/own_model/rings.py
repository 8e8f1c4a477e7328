"""A model of one's own, as launch/matrix.sh --model takes it: points in three rings, and a network with batch norm."""

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

# All of these are optional.
TARGET, BATCH_SIZE, EPOCHS, LEARNING_RATE = 0.94, 16, 20, 0.05


def model(width: int = 64) -> nn.Module:
    """Builds the model. --model-args '{"width": 256}' gives other arguments."""
    return nn.Sequential(nn.Linear(2, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 3))


def data() -> tuple[Dataset, Dataset]:
    """Returns the training and the held-out samples, pairs (inputs, target)."""
    points = torch.randn(1200, 2, generator=torch.Generator().manual_seed(1))
    rings = torch.bucketize(points.norm(dim=1), torch.tensor([0.8, 1.5]))
    return TensorDataset(points[:1000], rings[:1000]), TensorDataset(points[1000:], rings[1000:])


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean over the samples of a batch."""
    return nn.functional.cross_entropy(outputs, targets)


def metric(outputs: Tensor, targets: Tensor) -> Tensor:
    """Returns the number of right samples, for TARGET. Optional."""
    return (outputs.argmax(1) == targets).sum()

"""The CNN of the ALCF tutorials as a user writes it: plain PyTorch, of which `own_cnn` measures the time."""

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

TARGET, BATCH_SIZE, EPOCHS, LEARNING_RATE = 0.94, 16, 20, 0.004


class Net(nn.Module):
    """Two convolutions and two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.conv2(self.conv1(images).relu()).relu()
        x = self.dropout1(nn.functional.max_pool2d(x, 2))
        return self.fc2(self.dropout2(self.fc1(x.flatten(1)).relu()))


def model() -> nn.Module:
    return Net()


def data() -> tuple[Dataset, Dataset]:
    """Returns as many images as the digits are, of which the time does not depend on what they show."""
    numbers = torch.Generator().manual_seed(1)
    images, labels = torch.rand(1797, 1, 28, 28, generator=numbers), torch.randint(0, 10, (1797,), generator=numbers)
    return TensorDataset(images[:770], labels[:770]), TensorDataset(images[770:], labels[770:])


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets)


def metric(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(1) == targets).sum()

"""The CNN of the ALCF tutorials as a user writes it: plain PyTorch, channels last, whose time `own_cnn` measures."""

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
        x = images.to(memory_format=torch.channels_last)
        x = self.conv2(self.conv1(x).relu()).relu()
        x = self.dropout1(nn.functional.max_pool2d(x, 2))
        # In the order of channels-last memory flattening copies nothing.
        x = x.permute(0, 2, 3, 1).flatten(1)
        return self.fc2(self.dropout2(self.fc1(x).relu()))


def model() -> nn.Module:
    return Net().to(memory_format=torch.channels_last)


def data() -> tuple[Dataset, Dataset]:
    """Returns as many images as the digits are, of which the time does not depend on what they show."""
    numbers = torch.Generator().manual_seed(1)
    images, labels = torch.rand(1797, 1, 28, 28, generator=numbers), torch.randint(0, 10, (1797,), generator=numbers)
    return TensorDataset(images[:770], labels[:770]), TensorDataset(images[770:], labels[770:])


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets)


def metric(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(1) == targets).sum()

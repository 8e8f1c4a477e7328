"""ResNet-50 has the parameters, the sizes and the FLOPs of its papers, and computes the function that torchvision's does."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from common.model import weights
from common.model.description import parameters_of
from common.model.resnet import ResNet50
from frameworks.shared.pytorch import states
from tests.support.small_models import RESNET, module_of

MODEL = ResNet50()


def made(model):
    return module_of(model).double()


def test_convolutions_start_with_the_variance_of_their_fan_out_and_blocks_as_their_shortcuts():
    for name, (shape, distribution, scale) in parameters_of(MODEL).items():
        if len(shape) == 4:
            assert (distribution, scale) == ("normal", pytest.approx(math.sqrt(2 / (shape[0] * shape[2] * shape[3])))), name
        elif name == "fc.weight":
            assert (distribution, scale) == ("normal", 0.01)
        else:
            starts_at_1 = name.endswith(".weight") and not name.endswith("bn3.weight")
            assert (distribution, scale) == ("constant", 1 if starts_at_1 else 0), name


def test_a_state_has_parameters_only():
    module = made(RESNET)
    assert module.state_dict().keys() == parameters_of(RESNET).keys()
    assert {name for name, _ in module.named_buffers()} == {"means", "deviations"}


class Block(nn.Module):
    """torchvision's Bottleneck."""

    def __init__(self, num_inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(num_inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        if stride == 2 or num_inputs != 4 * width:
            self.downsample = nn.Sequential(nn.Conv2d(num_inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        out = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())).relu()
        return (self.bn3(self.conv3(out)) + (self.downsample(x) if hasattr(self, "downsample") else x)).relu()


class Reference(nn.Sequential):
    """torchvision's resnet50 with other sizes."""

    def __init__(self, blocks, width, num_classes):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        self.relu, self.maxpool = nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        num_inputs = width
        for stage, num_blocks in enumerate(blocks):
            stage_width = width * 2**stage
            first = Block(num_inputs, stage_width, 2 if stage else 1)
            num_inputs = 4 * stage_width
            setattr(self, f"layer{stage + 1}", nn.Sequential(first, *(Block(num_inputs, stage_width, 1) for _ in range(num_blocks - 1))))
        self.avgpool, self.flatten, self.fc = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(num_inputs, num_classes)


def test_it_is_torchvisions_function_of_normalised_pixels():
    stream = np.random.default_rng(3)
    drawn = {name: array + stream.uniform(0.1, 0.2, array.shape) for name, array in weights.draw(parameters_of(RESNET), 5, "fp64").items()}
    ours, theirs = made(RESNET), Reference(RESNET.blocks, RESNET.width, RESNET.num_classes).double()
    states.restore(ours, torch.optim.SGD(ours.parameters(), lr=0.1), drawn)
    lacking = theirs.load_state_dict({name: torch.from_numpy(array) for name, array in drawn.items()}, strict=False)
    assert lacking.unexpected_keys == []
    assert all("running" in name or "num_batches" in name for name in lacking.missing_keys)
    pixels = stream.integers(0, 256, (3, *RESNET.input_shape)).astype(np.uint8)
    means, deviations = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    images = torch.from_numpy(((pixels / 255 - means) / deviations).transpose(0, 3, 1, 2).copy())
    expected = theirs.train()(images).detach().numpy()
    np.testing.assert_allclose(ours(torch.from_numpy(pixels)).detach().numpy(), expected, rtol=1e-9, atol=1e-9)

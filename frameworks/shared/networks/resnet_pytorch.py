"""ResNet-50 in PyTorch, with torchvision's names of the parameters."""

import torch
from torch import Tensor, nn

from common.model import resnet
from common.model.resnet import ResNet50
from frameworks.shared.networks.layers_pytorch import Convolution, cross_entropy, is_right, zeroed

loss, metric = cross_entropy, is_right


def model(description: ResNet50) -> nn.Module:
    return zeroed(ResNet50Module(description))


def layers(model: "ResNet50Module") -> list[nn.Module]:
    return [block for stage in (model.layer1, model.layer2, model.layer3, model.layer4) for block in stage]


class BatchNorm(nn.Module):
    """Batch norm with the mean and the biased variance of the batch that it is given. Running statistics, for evaluation, are not kept."""

    def __init__(self, num_channels: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_channels))
        self.bias = nn.Parameter(torch.empty(num_channels))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.epsilon)


def normed(convolution: resnet.Convolution, epsilon: float) -> tuple[Convolution, BatchNorm]:
    """Returns the Convolution and the BatchNorm after it."""
    _, _, num_inputs, num_outputs, size, stride, _ = convolution
    return Convolution(num_inputs, num_outputs, size, stride, size // 2, bias=False), BatchNorm(num_outputs, epsilon)


class Bottleneck(nn.Module):
    """A block of common/model/resnet.py."""

    def __init__(self, block: resnet.Bottleneck, epsilon: float) -> None:
        super().__init__()
        first, second, third = block.convolutions
        self.conv1, self.bn1 = normed(first, epsilon)
        self.conv2, self.bn2 = normed(second, epsilon)
        self.conv3, self.bn3 = normed(third, epsilon)
        self.downsample = nn.Sequential(*normed(block.shortcut, epsilon)) if block.shortcut else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn1(self.conv1(x)).relu_()
        out = self.bn2(self.conv2(out)).relu_()
        return (self.bn3(self.conv3(out)) + self.downsample(x)).relu_()


class ResNet50Module(nn.Module):
    """The ResNet-50 of common/model/resnet.py: pixels (samples, height, width, 3) -> logits (samples, classes)."""

    means: Tensor
    deviations: Tensor

    def __init__(self, model: ResNet50) -> None:
        super().__init__()
        self.conv1, self.bn1 = normed(resnet.first_convolution(model), model.norm_epsilon)
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            nn.Sequential(*(Bottleneck(block, model.norm_epsilon) for block in stage)) for stage in resnet.stages(model)
        )
        self.fc = nn.Linear(resnet.num_features(model), model.num_classes)
        self.register_buffer("means", 255 * torch.tensor(model.pixel_means, dtype=torch.float64), persistent=False)
        self.register_buffer("deviations", 255 * torch.tensor(model.pixel_deviations, dtype=torch.float64), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        x = ((pixels - self.means) / self.deviations).permute(0, 3, 1, 2)
        x = self.bn1(self.conv1(x)).relu_()
        x = nn.functional.max_pool2d(x, resnet.POOLING_SIZE, resnet.POOLING_STRIDE, resnet.POOLING_SIZE // 2)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))

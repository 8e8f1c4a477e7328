"""ResNet-50, independent of the framework: its convolutions, from which come its parameters and its FLOPs."""

import math
from typing import NamedTuple

from common.weights import constant, normal

# A bottleneck has this many times as many outputs as its 3x3 convolution: He et al. 2015, arXiv:1512.03385, table 1.
EXPANSION = 4


class ResNet50(NamedTuple):
    """ResNet-50 v1.5: 25,557,032 parameters.

    He et al. 2015, arXiv:1512.03385, table 1; v1.5: stage by stage the 3x3 convolution has the stride, not the 1x1 convolution before it.
    `blocks`: bottlenecks of the four stages; `width`: outputs of the first convolution. Inputs are pixels of 0 to 255, channels last;
    `pixel_means` and `pixel_deviations` are ImageNet's, of colours from 0 to 1. `norm_epsilon`: of batch norm.
    """

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    image_size: int = 224
    num_classes: int = 1000
    norm_epsilon: float = 1e-5
    pixel_means: tuple[float, ...] = (0.485, 0.456, 0.406)
    pixel_deviations: tuple[float, ...] = (0.229, 0.224, 0.225)
    whole_inputs: bool = True
    whole_targets: bool = True

    @property
    def input_shape(self):
        return (self.image_size, self.image_size, 3)

    @property
    def target_shape(self):
        return ()


class Convolution(NamedTuple):
    """A convolution without bias, padded by half its size, and the batch norm after it.

    `name` and `norm` as in torchvision. `size`: height and width of its window. `output_size`: height and width of its output.
    """

    name: str
    norm: str
    num_inputs: int
    num_outputs: int
    size: int
    stride: int
    output_size: int


class Bottleneck(NamedTuple):
    """A block: three `convolutions`, and the `shortcut` around them, a convolution or, if None, nothing. `name` begins those of both."""

    name: str
    convolutions: tuple[Convolution, ...]
    shortcut: Convolution | None


def halved(size):
    """Height and width of the output of a convolution or pooling with stride 2, padded by half its odd size."""
    return (size + 1) // 2


def first_convolution(model):
    return Convolution("conv1", "bn1", 3, model.width, 7, 2, halved(model.image_size))


def stages(model):
    """The Bottlenecks of each of the four stages."""
    size, num_inputs, found = halved(first_convolution(model).output_size), model.width, []
    for number, num_blocks in enumerate(model.blocks, 1):
        width = model.width * 2 ** (number - 1)
        found.append([])
        for block in range(num_blocks):
            stride = 2 if number > 1 and block == 0 else 1
            found[-1].append(bottleneck(f"layer{number}.{block}", num_inputs, width, stride, size))
            size, num_inputs = found[-1][-1].convolutions[-1].output_size, EXPANSION * width
    return found


def bottleneck(name, num_inputs, width, stride, size):
    """The Bottleneck of that name. `width`: outputs of its 3x3 convolution; `size`: height and width of its input."""
    after, num_outputs = halved(size) if stride == 2 else size, EXPANSION * width
    convolutions = (
        Convolution(f"{name}.conv1", f"{name}.bn1", num_inputs, width, 1, 1, size),
        Convolution(f"{name}.conv2", f"{name}.bn2", width, width, 3, stride, after),
        Convolution(f"{name}.conv3", f"{name}.bn3", width, num_outputs, 1, 1, after),
    )
    shortcut = Convolution(f"{name}.downsample.0", f"{name}.downsample.1", num_inputs, num_outputs, 1, stride, after)
    return Bottleneck(name, convolutions, shortcut if stride == 2 or num_inputs != num_outputs else None)


def num_features(model):
    """The number of inputs of the last layer."""
    return stages(model)[-1][-1].convolutions[-1].num_outputs


def convolutions(model):
    """All convolutions of a model in the order of torchvision's parameters."""
    blocks = [block for stage in stages(model) for block in stage]
    return [first_convolution(model), *(one for block in blocks for one in (*block.convolutions, block.shortcut) if one)]


def resnet_parameters(model):
    """Names as in torchvision.

    Convolutions are normal with variance 2 / fan-out (He et al. 2015, arXiv:1502.01852, section 2.2), the last layer with deviation 0.01.
    A block's last batch norm has weight 0, so that at first the block is its shortcut (Goyal et al. 2017, arXiv:1706.02677, section 5.1).
    """
    parameters = {}
    for name, norm, num_inputs, num_outputs, size, *_ in convolutions(model):
        deviation = math.sqrt(2 / (num_outputs * size**2))
        parameters |= {
            f"{name}.weight": normal((num_outputs, num_inputs, size, size), deviation),
            f"{norm}.weight": constant((num_outputs,), 0.0 if norm.endswith("bn3") else 1.0),
            f"{norm}.bias": constant((num_outputs,)),
        }
    last = (model.num_classes, num_features(model))
    return parameters | {"fc.weight": normal(last, 0.01), "fc.bias": constant(last[:1])}


def forward_flops(model):
    """Floating-point operations of the forward pass for one image: two per multiplication and addition of its products."""
    products = [one.output_size**2 * one.num_inputs * one.num_outputs * one.size**2 for one in convolutions(model)]
    return 2 * (sum(products) + num_features(model) * model.num_classes)

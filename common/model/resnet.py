"""ResNet-50, which its convolutions describe."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from common.model.description import BuiltIn, Layer, Part, Workload, norm, product
from common.model.weights import normal

# A bottleneck has this many times as many outputs as its 3x3 convolution: He et al. 2015, arXiv:1512.03385, table 1.
EXPANSION = 4
# Window and stride of the pooling after the first convolution, which pads as a convolution does.
POOLING_SIZE, POOLING_STRIDE = 3, 2


@dataclass(frozen=True)
class ResNet50(BuiltIn):
    """ResNet-50 v1.5: 25,557,032 parameters, with torchvision's names.

    He et al. 2015, arXiv:1512.03385, table 1; in v1.5 the 3x3 convolution has the stride of its stage, and not the 1x1 convolution before
    it. `blocks` are the numbers of bottlenecks of the four stages, and `width` is the number of outputs of the first convolution. Inputs
    are pixels of 0 to 255, channels last. `pixel_means` and `pixel_deviations` are ImageNet's, of colours from 0 to 1. `norm_epsilon` is
    that of batch norm.
    """

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    image_size: int = 224
    num_classes: int = 1000
    norm_epsilon: float = 1e-5
    pixel_means: tuple[float, ...] = (0.485, 0.456, 0.406)
    pixel_deviations: tuple[float, ...] = (0.229, 0.224, 0.225)
    whole_inputs: bool = True

    pixels = True

    @property
    def input_shape(self) -> tuple[int, int, int]:
        return (self.image_size, self.image_size, 3)

    @property
    def target_shape(self) -> tuple[int, ...]:
        return ()

    def parts(self) -> list[Part]:
        """Returns the first convolution, the blocks, and the last layer."""
        blocks = [block for stage in stages(self) for block in stage]
        dense = product("fc", normal((self.num_classes, num_features(self)), 0.01), has_bias=True)
        return [
            Part("stem", first_convolution(self).layers()),
            *(Part(block.name, tuple(layer for convolution in block.computed for layer in convolution.layers())) for block in blocks),
            Part("fc", (dense,)),
        ]


class Convolution(NamedTuple):
    """A convolution without bias, padded by half its size, and the batch norm after it.

    `name` and `norm` are torchvision's names. `size` is the height and width of the window, `input_size` that of the input.
    """

    name: str
    norm: str
    num_inputs: int
    num_outputs: int
    size: int
    stride: int
    input_size: int

    @property
    def output_size(self) -> int:
        return halved(self.input_size) if self.stride == 2 else self.input_size

    def layers(self) -> tuple[Layer, Layer]:
        """Returns the convolution and its batch norm.

        The weights of convolutions are normal with variance 2 / fan-out (He et al. 2015, arXiv:1502.01852, section 2.2). A block's last
        batch norm has weight 0, so that at first the block is its shortcut (Goyal et al. 2017, arXiv:1706.02677, section 5.1).
        """
        weight = normal((self.num_outputs, self.num_inputs, self.size, self.size), math.sqrt(2 / (self.num_outputs * self.size**2)))
        scale = 0.0 if self.norm.endswith("bn3") else 1.0
        return product(self.name, weight, self.output_size**2), norm(self.norm, self.num_outputs, scale=scale)


class Bottleneck(NamedTuple):
    """A block: three convolutions, and the shortcut around them, which is a convolution or, if None, the identity.

    The names of all its convolutions begin with `name`.
    """

    name: str
    convolutions: tuple[Convolution, ...]
    shortcut: Convolution | None

    @property
    def computed(self) -> tuple[Convolution, ...]:
        """The three or four convolutions of the block."""
        return (*self.convolutions, self.shortcut) if self.shortcut else self.convolutions


def halved(size: int) -> int:
    """Returns the height and width of the output of a convolution or pooling with stride 2, padded by half its odd size."""
    return (size + 1) // 2


def first_convolution(model: ResNet50) -> Convolution:
    return Convolution("conv1", "bn1", 3, model.width, 7, 2, model.image_size)


def stages(model: ResNet50) -> list[list[Bottleneck]]:
    """Returns the blocks of each of the four stages."""
    bottlenecks: list[list[Bottleneck]] = []
    size, num_inputs = halved(first_convolution(model).output_size), model.width
    for number, num_blocks in enumerate(model.blocks, 1):
        width = model.width * 2 ** (number - 1)
        bottlenecks.append([])
        for block in range(num_blocks):
            stride = 2 if number > 1 and block == 0 else 1
            bottlenecks[-1].append(bottleneck(f"layer{number}.{block}", num_inputs, width, stride, size))
            size, num_inputs = bottlenecks[-1][-1].convolutions[-1].output_size, EXPANSION * width
    return bottlenecks


def bottleneck(name: str, num_inputs: int, width: int, stride: int, size: int) -> Bottleneck:
    """Returns a block whose 3x3 convolution has `width` outputs, and whose input has the height and width `size`."""
    output_size, num_outputs = halved(size) if stride == 2 else size, EXPANSION * width
    convolutions = (
        Convolution(f"{name}.conv1", f"{name}.bn1", num_inputs, width, 1, 1, size),
        Convolution(f"{name}.conv2", f"{name}.bn2", width, width, 3, stride, size),
        Convolution(f"{name}.conv3", f"{name}.bn3", width, num_outputs, 1, 1, output_size),
    )
    shortcut = Convolution(f"{name}.downsample.0", f"{name}.downsample.1", num_inputs, num_outputs, 1, stride, size)
    return Bottleneck(name, convolutions, shortcut if stride == 2 or num_inputs != num_outputs else None)


def num_features(model: ResNet50) -> int:
    """Returns the number of inputs of the last layer."""
    return stages(model)[-1][-1].convolutions[-1].num_outputs


# 0.1 for a batch of 256: Goyal et al. 2017, arXiv:1706.02677, section 5.1.
WORKLOADS = {"resnet50": Workload(ResNet50(), ("random",), 32, 32, 1, None, "sgd", {"sgd": 0.0125, "adam": 0.001})}

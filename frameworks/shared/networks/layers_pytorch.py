"""What the built-in models in PyTorch share: convolutions, the loss and the metric of classes, and how they begin."""

from typing import TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


class Convolution(nn.Module):
    """A convolution whose weight is stored as (out, height, width, in).

    Permuted to OIHW it is channels-last, for which convolutions are faster; as stored it is contiguous, as Horovod requires.
    """

    def __init__(self, num_inputs: int, num_outputs: int, size: int, stride: int = 1, padding: int = 0, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_outputs, size, size, num_inputs))
        self.bias = nn.Parameter(torch.empty(num_outputs)) if bias else None
        self.stride, self.padding = stride, padding

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(x, self.weight.permute(0, 3, 1, 2), self.bias, self.stride, self.padding)


class FlattenedLinear(nn.Linear):
    """A dense layer of flattened images, whose values lie channels last in memory, so that flattening copies nothing."""

    def __init__(self, image_shape: tuple[int, int, int], num_outputs: int) -> None:
        height, width, channels = image_shape
        super().__init__(height * width * channels, num_outputs)
        self.image = height, width


def zeroed(module: Module) -> Module:
    """Sets the parameters of a module to 0. Those of a run are set before training.

    Uninitialized values may overflow in the warm-up step. DeepSpeed would skip that step and allocate no optimizer state.
    """
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    return module


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Returns the losses of logits (…, classes) and targets (…) in one dimension. Those of logits in bfloat16 are in float32."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")


def is_right(logits: Tensor, targets: Tensor) -> Tensor:
    """Returns whether the largest logit is that of the target, of the shape of the targets."""
    return logits.argmax(-1) == targets

"""What the models in PyTorch are made of: mixed precision, and convolutions."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def autocast(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Makes the matrix products, convolutions and attention of a module's forward bfloat16 where the module's `mixed` is true.

    Autocast begins inside of the module: DataParallel's threads and DeepSpeed's engine do not take it over from outside.
    """

    @functools.wraps(forward)
    def computed(module: Any, *arguments: Any, **named: Any) -> Any:
        if not module.mixed:
            return forward(module, *arguments, **named)
        with torch.autocast(next(module.parameters()).device.type, torch.bfloat16):
            return forward(module, *arguments, **named)

    return computed


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

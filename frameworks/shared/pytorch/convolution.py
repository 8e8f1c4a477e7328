"""The convolution of the models in PyTorch."""

import torch
from torch import nn


class Convolution(nn.Module):
    """A convolution whose weight is stored as (out, height, width, in).

    Permuted to OIHW it is channels-last, for which convolutions are faster; as stored it is contiguous, as Horovod requires.
    """

    def __init__(self, num_inputs, num_outputs, size, stride=1, padding=0, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_outputs, size, size, num_inputs))
        self.bias = nn.Parameter(torch.empty(num_outputs)) if bias else None
        self.stride, self.padding = stride, padding

    def forward(self, x):
        return nn.functional.conv2d(x, self.weight.permute(0, 3, 1, 2), self.bias, self.stride, self.padding)

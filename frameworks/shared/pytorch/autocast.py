"""Mixed precision of the models in PyTorch."""

import functools

import torch


def autocast(forward):
    """A module's forward, whose matrix products, convolutions and attention are in bfloat16 where the module's `mixed` is true.

    Autocast begins inside of the module: DataParallel's threads and DeepSpeed's engine do not take it over from outside.
    """

    @functools.wraps(forward)
    def computed(module, x):
        if not module.mixed:
            return forward(module, x)
        with torch.autocast(x.device.type, torch.bfloat16):
            return forward(module, x)

    return computed

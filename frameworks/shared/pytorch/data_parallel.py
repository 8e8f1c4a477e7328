"""PyTorch's DataParallel: the GPUs that it computes on."""

import torch

from common.errors import UserError


def problem(device):
    """Why DataParallel is of no use on `cpu` or `cuda` here; None if it is."""
    num_gpus = torch.cuda.device_count() if device == "cuda" else 0
    return None if num_gpus > 1 else f"with {num_gpus} GPUs DataParallel would only call the module"


def gpus(device):
    """The numbers of all GPUs, the one with the parameters first. Raises UserError where there are not several."""
    if reason := problem(device.type):
        raise UserError(f"{reason}; use single, or a node with several GPUs")
    return [device.index, *(index for index in range(torch.cuda.device_count()) if index != device.index)]

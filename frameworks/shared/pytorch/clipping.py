"""Clipping of gradients where a user's file has a CLIP_NORM: by the norm of the whole gradient, averaged over the ranks."""

from typing import Any

from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from common.config import Settings
from common.errors import UserError
from common.workloads import workload_of


def before_steps(optimizer: Optimizer, settings: Settings) -> Optimizer:
    """Makes an optimizer clip before it updates. Its parameters are all of the model's, whole or PyTorch's sharded ones (DTensor)."""
    if (limit := workload_of(settings).clip_norm) is not None:
        optimizer.register_step_pre_hook(lambda *_: _clip(optimizer, limit))
    return optimizer


def after_synchronize(optimizer: Any, settings: Settings) -> None:
    """Makes Horovod's optimizer clip when it has averaged the gradients, which it does within its step. Raises UserError for Adasum."""
    if (limit := workload_of(settings).clip_norm) is None:
        return
    if settings.reduction == "adasum":
        raise UserError("Adasum combines updates, so that there is no whole gradient to clip; leave adasum or CLIP_NORM out")
    synchronize = optimizer.synchronize

    def synchronize_and_clip() -> None:
        synchronize()
        _clip(optimizer, limit)

    optimizer.synchronize = synchronize_and_clip


def _clip(optimizer: Optimizer, limit: float) -> None:
    clip_grad_norm_([parameter for group in optimizer.param_groups for parameter in group["params"]], limit)

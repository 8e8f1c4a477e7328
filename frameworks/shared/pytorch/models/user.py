"""A model of the user's own in PyTorch: its module, and how its file computes the loss and the metric."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from common.config import Settings
from common.model import user_file, user_model
from common.model.user_file import UserFile
from common.model.user_model import UserModel
from common.ranks.launcher_variables import Ranks
from frameworks.shared.pytorch.models.layers import autocast


class UserCriterion:
    """The loss and the metric of a file."""

    def __init__(self, model: UserModel) -> None:
        self.file, self.num_sums = model.file, user_model.num_sums(model)

    def loss(self, outputs: Any, targets: Any, weights: Tensor) -> Tensor:
        """Returns the weighted sum of the samples' losses, which have equal weights where the file returns their mean."""
        losses = self.file.call("loss", outputs, targets)
        return (losses * weights).sum() if losses.dim() else losses.to(weights.dtype) * weights.sum()

    def totals(self, outputs: Any, targets: Any, weights: Tensor) -> Tensor:
        """Returns the Totals of one batch as a tensor. A batch that has only padding has weight 0."""
        has_samples, metric = weights.sum() > 0, self.file.call("metric", outputs, targets)
        if self.num_sums:
            right, sums = torch.zeros_like(weights.sum()), user_model.flat_sums(metric, weights.device)
        else:
            right, sums = torch.as_tensor(metric, dtype=weights.dtype, device=weights.device), weights.new_zeros(0)
        totals = torch.stack([self.loss(outputs, targets, weights), right * has_samples, weights.sum()])
        return torch.cat([totals, torch.where(has_samples, sums, 0.0)])


def optimizer_of(model: UserModel, module: nn.Module) -> Optimizer | None:
    """Returns the optimizer that a file makes; None where it makes none."""
    return model.file.call("optimizer", module.parameters()) if model.file.has("optimizer") else None


def build(model: UserModel, settings: Settings, device: torch.device, ranks: Ranks) -> nn.Module:
    """Builds the module of a file: the same on all ranks, under the seed. Without --dropout its dropout is off.

    Raises UserError where SyncBatchNorm cannot have the statistics of all ranks.
    """
    module = user_model.build(model.file, settings.seed)
    _expect_synchronized(module, model.file, device, ranks)
    if not settings.dropout:
        without_dropout(module)
    if settings.precision == "bf16":
        module.mixed = True
        module.forward = autocast(type(module).forward).__get__(module)
    module = module.to(device=device, dtype=torch.float64 if settings.precision == "fp64" else torch.float32)
    # Its forward pass and its loss may draw random numbers too.
    user_file.seed_generators((settings.seed * 100_003 + ranks.rank) % 2**32)
    torch.manual_seed(settings.seed * 100_003 + ranks.rank)
    return module


def _expect_synchronized(module: nn.Module, file: UserFile, device: torch.device, ranks: Ranks) -> None:
    """Raises UserError for a SyncBatchNorm on CPUs, where PyTorch has none, and with a library that has its own, as Horovod."""
    if not any(isinstance(layer, nn.SyncBatchNorm) for layer in module.modules()):
        return
    if dist.is_initialized() and device.type == "cpu":
        file.refuse("model", "SyncBatchNorm is for GPUs (--device cuda); on CPUs use BatchNorm, whose statistics are by rank")
    if ranks.size > 1 and not dist.is_initialized():
        file.refuse("model", "SyncBatchNorm needs torch.distributed, which this backend does not use; use BatchNorm, or ddp")


def without_dropout(module: nn.Module) -> None:
    for layer in module.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            layer.p = 0.0
        elif isinstance(layer, nn.MultiheadAttention | nn.RNNBase):
            layer.dropout = 0.0

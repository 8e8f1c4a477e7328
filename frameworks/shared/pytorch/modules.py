"""How a run builds its model in PyTorch, and what it computes from the outputs: by the functions of the model's file."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from common.config import Settings
from common.model import model_file, user_data, user_model
from common.model.model_file import ModelFile
from common.ranks.launcher_variables import Ranks
from common.workloads import workload_of

# PyTorch's own functions, which those of torch.nn.functional call.
DROPOUT_FUNCTIONS = [
    f"{name}{ending}" for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout") for ending in ("", "_")
]
ATTENTION = functional.scaled_dot_product_attention
# The types of parameters, their gradients and the loss.
DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.float32, "tf32": torch.float32}


def build(settings: Settings, device: torch.device | str, ranks: Ranks) -> nn.Module:
    """Builds the model on its device: the same on all ranks. Without --dropout its dropout is off.

    Raises UserError where SyncBatchNorm cannot have the statistics of all ranks.
    """
    device, file = torch.device(device), _file_of(settings)
    module: Any = model_file.build(file, settings.seed)
    _expect_synchronized(module, file, device, ranks)
    switch_functional_dropout(is_on=True)
    if not settings.dropout:
        without_dropout(module)
    module.mixed = settings.precision == "bf16"
    if module.mixed:
        change_forward(module, autocast)
    if settings.precision == "fp64":
        change_forward(module, in_float64)
    module = module.to(device=device, dtype=DTYPES[settings.precision])
    # Dropout, and the forward pass and the loss of a file, may draw random numbers.
    seed = settings.seed * 100_003 + ranks.rank
    model_file.seed_generators(seed % 2**32)
    torch.manual_seed(seed)
    return module


def reach_all_parameters(settings: Settings, module: nn.Module) -> None:
    """Gives parameters that only some steps use a gradient of 0 in the others, where a library averages the gradients that a rank has."""
    unused = workload_of(settings).model.unused_parameters
    parameters = [parameter for name, parameter in module.named_parameters() if unused.get(name) and parameter.requires_grad]
    if not parameters:
        return

    def add_zero(module: nn.Module, _: Any, outputs: Any) -> Any:
        zero = sum(0.0 * parameter.sum() for parameter in parameters)
        return user_data.mapped(lambda tensor: tensor + zero if module.training and tensor.is_floating_point() else tensor, outputs)

    module.register_forward_hook(add_zero)


def layers_of(settings: Settings, module: nn.Module) -> list[nn.Module]:
    """Returns the layers of a model that FSDP shards by themselves."""
    return model_file.layers_of(_file_of(settings), module)


def optimizer_of(settings: Settings, module: nn.Module) -> Optimizer | None:
    """Returns the optimizer that the file of the model makes; None where it makes none."""
    file = _file_of(settings)
    return model_file.optimizer_of(file, module.named_parameters()) if file.has("optimizer") else None


@final
class Criterion:
    """The loss of a model and what its evaluation counts, from its outputs. `num_sums` are those of a file with finish().

    `takes_derivatives`: whether its evaluation needs gradients, which the model or loss() takes.
    """

    def __init__(self, settings: Settings) -> None:
        model: Any = workload_of(settings).model
        self.file = model.file_in("pytorch")
        self.dtype = DTYPES[settings.precision]
        self.takes_derivatives = model.takes_derivatives
        self.num_sums = user_model.num_sums(model) if self.file.has("finish") else 0

    def loss(self, outputs: Any, targets: Any, weights: Tensor) -> Tensor:
        """Returns the weighted sum of the losses of a batch, which have equal weights where the file returns their mean."""
        with default_dtype(self.dtype):
            losses = self.file.call("loss", outputs, targets)
        return (losses * weights.flatten()).sum() if losses.dim() else losses.to(weights.dtype) * weights.sum()

    def totals(self, outputs: Any, targets: Any, weights: Tensor) -> Tensor:
        """Returns the Totals of a batch as a tensor. A batch that has only padding has weight 0."""
        has_samples = weights.sum() > 0
        with default_dtype(self.dtype):
            metric = self.file.call("metric", outputs, targets)
        if self.num_sums:
            right, sums = torch.zeros_like(weights.sum()), user_model.flat_sums(metric, weights.device)
        else:
            right, sums = torch.as_tensor(metric, device=weights.device), weights.new_zeros(0)
            right = (right * weights).sum() if right.shape == weights.shape else right.to(weights.dtype) * has_samples
        totals = torch.stack([self.loss(outputs, targets, weights), right, weights.sum()])
        return torch.cat([totals, torch.where(has_samples, sums, 0.0)])


def _file_of(settings: Settings) -> ModelFile:
    return workload_of(settings).model.file_in("pytorch")


def _expect_synchronized(module: nn.Module, file: ModelFile, device: torch.device, ranks: Ranks) -> None:
    """Raises UserError for a SyncBatchNorm on CPUs, where PyTorch has none, and with a library that has its own, as Horovod."""
    if not any(isinstance(layer, nn.SyncBatchNorm) for layer in module.modules()):
        return
    if dist.is_initialized() and device.type == "cpu":
        file.refuse("model", "SyncBatchNorm is for GPUs (--device cuda); on CPUs use BatchNorm, whose statistics are by rank")
    if ranks.size > 1 and not dist.is_initialized():
        file.refuse("model", "SyncBatchNorm needs torch.distributed, which this backend does not use; use BatchNorm, or ddp")


def without_dropout(module: nn.Module) -> None:
    """Turns dropout and stochastic depth off: those of a module's layers, and the functions of dropout for the whole process."""
    for layer in module.modules():
        changed: Any = layer
        if isinstance(layer, nn.modules.dropout._DropoutNd) or type(layer).__name__ == "StochasticDepth":
            changed.p = 0.0
        elif isinstance(layer, nn.MultiheadAttention | nn.RNNBase):
            changed.dropout = 0.0
        elif isinstance(getattr(layer, "drop_prob", None), float):
            changed.drop_prob = 0.0
    switch_functional_dropout(is_on=False)


def switch_functional_dropout(is_on: bool) -> None:
    """Turns the functions of dropout on or off, wherever they are called: the backward pass may compute a layer again."""
    for name in DROPOUT_FUNCTIONS:
        torch._VF.__dict__.pop(name, None)
        if not is_on:
            setattr(torch._VF, name, lambda values, *_: values)
    functional.scaled_dot_product_attention = ATTENTION if is_on else _attention_without_dropout


def _attention_without_dropout(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, *arguments: Any, **named: Any
) -> Tensor:
    return ATTENTION(query, key, value, attn_mask, 0.0, *arguments, **named)


def change_forward(module: nn.Module, change: Callable[[Callable], Callable]) -> None:
    """Replaces a module's forward by what a function makes of it.

    It replaces the class, since copies of a module, such as DataParallel's, keep it and their own parameters.
    """
    module.__class__ = _changed_class(type(module), change)


@functools.cache
def _changed_class(module_class: type[nn.Module], change: Callable[[Callable], Callable]) -> type[nn.Module]:
    return type(module_class.__name__, (module_class,), {"forward": change(module_class.forward)})


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Is a context in which tensors that a file makes of its own, such as a mask or a first state, have the type of the parameters."""
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


# Changes a function, and begins nothing yet.
in_float64 = default_dtype(torch.float64)


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

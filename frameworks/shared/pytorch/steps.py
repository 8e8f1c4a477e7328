"""What the steps of every PyTorch backend are made of: batches on the device, the optimizer, which may clip, and the evaluation."""

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from common.config import Settings
from common.model import conventions, user_data
from common.trainer import Batch, MicroBatches, Totals
from common.workloads import workload_of
from frameworks.shared.pytorch import modules
from frameworks.shared.pytorch.modules import Criterion

# Inputs, targets, weights, and whether it is the last of its step.
MicroBatch = tuple[Tensor, Tensor, Tensor, bool]


def optimizer_for(settings: Settings, model: nn.Module) -> Optimizer:
    """Returns the optimizer of the settings, which clips gradients before its steps where a file has a CLIP_NORM."""
    return clip_before_steps(plain_optimizer_for(settings, model), settings)


def plain_optimizer_for(settings: Settings, model: nn.Module) -> Optimizer:
    """Returns the optimizer of the settings, with all relevant defaults explicit; fused, as TensorFlow's update operations are.

    A file's own optimizer is as the file has it.
    """
    if (optimizer := modules.optimizer_of(settings, model)) is not None:
        return optimizer
    learning_rate = settings.learning_rate or 0.0
    # The fused kernels begin the momentum of all parameters together.
    fused = not workload_of(settings).model.unused_parameters
    if settings.optimizer == "adam":
        return torch.optim.Adam(
            model.parameters(), lr=learning_rate, betas=conventions.ADAM_BETAS, eps=conventions.ADAM_EPSILON, weight_decay=0, fused=fused
        )
    return torch.optim.SGD(
        model.parameters(), lr=learning_rate, momentum=settings.momentum, dampening=0, nesterov=False, weight_decay=0, fused=fused
    )


def clip_before_steps(optimizer: Optimizer, settings: Settings) -> Optimizer:
    """Makes an optimizer clip gradients, by their norm over all parameters, before it updates, where a file has a CLIP_NORM.

    Its parameters are all of the model's, whole or PyTorch's sharded ones (DTensor).
    """
    if (limit := workload_of(settings).clip_norm) is not None:
        optimizer.register_step_pre_hook(lambda *_: _clip(optimizer, limit))
    return optimizer


def finish_synchronize(optimizer: Any, settings: Settings) -> None:
    """Makes Horovod's optimizer clip when it has averaged the gradients, which it does within its step.

    Before that it leaves out the gradients that no rank has had, which Horovod makes 0.
    """
    workload = workload_of(settings)
    limit, leaves_out = workload.clip_norm, bool(workload.model.unused_parameters)
    if limit is None and not leaves_out:
        return
    synchronize = optimizer.synchronize

    def synchronize_and_finish() -> None:
        synchronize()
        if leaves_out:
            remove_zeros(parameters_of(optimizer))
        if limit is not None:
            _clip(optimizer, limit)

    optimizer.synchronize = synchronize_and_finish


def leave_out_unused(optimizer: Optimizer, settings: Settings, add_up: Callable[[Tensor], object] = lambda _: None) -> Optimizer:
    """Makes an optimizer leave out parameters that no rank has used, as one process does, where a library has made their gradients 0.

    `add_up`: adds numbers up over the ranks in place, where each has a shard of the gradients.
    """
    if workload_of(settings).model.unused_parameters:
        optimizer.register_step_pre_hook(lambda *_: remove_zeros(parameters_of(optimizer), add_up))
    return optimizer


def remove_zeros(parameters: Iterable[Tensor], add_up: Callable[[Tensor], object] = lambda _: None) -> None:
    """Removes the gradients that are 0."""
    gradients = {parameter: parameter.grad for parameter in parameters if parameter.grad is not None}
    if not gradients:
        return
    counts = torch.stack([getattr(gradient, "_local_tensor", gradient).count_nonzero() for gradient in gradients.values()])
    add_up(counts)
    for parameter, count in zip(gradients, counts.tolist(), strict=True):
        if not count:
            parameter.grad = None


def _clip(optimizer: Optimizer, limit: float) -> None:
    clip_grad_norm_(parameters_of(optimizer), limit)


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def options_of(optimizer: Optimizer) -> dict[str, Any]:
    """Returns the options with which another optimizer of the class is made. AdamW's defaults have one of its base class too."""
    names = inspect.signature(type(optimizer)).parameters
    return {name: value for name, value in optimizer.defaults.items() if name in names}


def unfused(optimizer: Optimizer) -> Optimizer:
    """Leaves the kernels of an optimizer to PyTorch, whose fused SGD takes no sharded tensors (DTensor)."""
    for group in optimizer.param_groups:
        group["fused"] = None
    return optimizer


def set_learning_rate(optimizer: Optimizer, learning_rate: float) -> None:
    """Sets the rate of each group of parameters: this one, or a multiple of it that a file's optimizer has."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group.get("rate_factor", 1.0)


def mapped(function: Callable[[Tensor], Any], values: Any) -> Any:
    """Applies a function to each tensor or array, as a tensor, of nested values."""
    return user_data.mapped(lambda numbers: function(torch.as_tensor(numbers)), values)


def chunks(values: Any, number: int) -> list[Any]:
    """Returns as many parts of equal size along the first axis, or those that have been collated by themselves."""
    if isinstance(values, MicroBatches):
        return list(values)
    return [mapped(lambda tensor, index=index: tensor.chunk(number)[index], values) for index in range(number)]


def tensors(batches: Iterable[Batch], device: torch.device | str) -> Iterator[tuple[Tensor, Tensor, Tensor, float]]:
    """Yields the inputs, targets, weights and learning rate of each batch, with tensors on the device."""
    for batch in batches:
        inputs, targets, weights = (mapped(lambda tensor: on_device(tensor, device), nested) for nested in batch[:3])
        yield inputs, targets, weights, batch.learning_rate


def on_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Copies a tensor of a batch to the device. The copy to a GPU takes place while others compute, which only pinned memory allows."""
    return tensor.pin_memory().to(device, non_blocking=True) if torch.device(device).type == "cuda" else tensor.to(device)


def in_micro_batches(batches: Iterable[Batch], accumulate: int, device: torch.device) -> Iterator[tuple[list[MicroBatch], float]]:
    """Yields the `accumulate` micro-batches of each step and its learning rate."""
    for *samples, learning_rate in tensors(batches, device):
        micro_batches = zip(*(chunks(nested, accumulate) for nested in samples), strict=True)
        yield [(*micro_batch, number == accumulate) for number, micro_batch in enumerate(micro_batches, 1)], learning_rate


def evaluate(model: nn.Module, batches: Iterable[Batch], device: torch.device, criterion: Criterion) -> Totals:
    """Returns the Totals of the batches, for every PyTorch backend."""
    model.eval()
    totals = torch.zeros(3 + criterion.num_sums, dtype=torch.float64, device=device)
    # DistributedDataParallel would wait for a backward pass where gradients are on.
    without_backward = getattr(model, "no_sync", contextlib.nullcontext) if criterion.takes_derivatives else contextlib.nullcontext
    with torch.set_grad_enabled(criterion.takes_derivatives), without_backward():
        for inputs, targets, weights, _ in tensors(batches, device):
            totals += criterion.totals(model(inputs), targets, weights).detach()
    return Totals.of(totals.tolist())

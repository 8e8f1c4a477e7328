"""The memory that a training step needs beside its state, counted before it runs: the step is taken on tensors without data."""

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from common.config import Settings
from common.cost import parallelism
from common.errors import UserError
from common.model import pipelining
from common.ranks.launcher_variables import Ranks
from common.training import batches
from common.workloads import workload_of
from frameworks.shared.pytorch import divided_layers, modules, pipeline_stages, steps

ONE_RANK = Ranks(0, 1, 0, 1, "forecast")


class StepBytes(NamedTuple):
    """Bytes of a step of one process beside parameters and optimizer state.

    `activations` are there after the forward pass. `peak` is the most at once, with all gradients, and `peak_without_gradients` where each
    goes as soon as it is made. `layer_sizes` are the numbers of parameters of the layers that FSDP shards by themselves.
    """

    activations: float
    peak: float
    peak_without_gradients: float
    layer_sizes: tuple[int, ...] = ()

    def peak_with(self, gradient_share: float) -> float:
        """Returns the most at once where a rank keeps this share of the gradients.

        It is a bound: of each moment the bytes are linear in the share, so that the most of all moments is convex.
        """
        return self.peak_without_gradients + gradient_share * (self.peak - self.peak_without_gradients)


class Live(TorchDispatchMode):
    """Counts the bytes of the tensors that are alive: `now`, the `peak`, and the peak without gradients that have been accumulated.

    PyTorch's MemTracker gives the same numbers in six times the time, and takes no pipelines (2.13).
    """

    def __init__(self, before: Iterable[Tensor]) -> None:
        """Does not count the tensors that are there before."""
        super().__init__()
        self.now = self.peak = self.peak_without_gradients = self.gradients = 0
        self.before = list(before)
        self.seen = {tensor.untyped_storage()._cdata for tensor in self.before}

    def add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, num_bytes = storage._cdata, storage.nbytes()
        if key not in self.seen:
            self.seen.add(key)
            self.now += num_bytes
            self.peak = max(self.peak, self.now)
            self.peak_without_gradients = max(self.peak_without_gradients, self.now - self.gradients)
            weakref.finalize(storage, self._remove, key, num_bytes)

    def leave_out_gradient(self, parameter: Tensor) -> None:
        """Counts the gradient of a parameter as accumulated."""
        assert parameter.grad is not None
        self.gradients += getattr(parameter.grad, "_local_tensor", parameter.grad).untyped_storage().nbytes()

    def _remove(self, key: int, num_bytes: int) -> None:
        self.seen.remove(key)
        self.now -= num_bytes

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, Tensor):
                self.add(getattr(value, "_local_tensor", value))
        return result


def of_step(settings: Settings) -> StepBytes:
    """Counts a step of the batch of the settings.

    Raises UserError for a model that cannot be computed on tensors without data, as one whose way depends on values.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        module = _without_data(settings, mode)
        layer_sizes = [sum(parameter.numel() for parameter in layer.parameters()) for layer in modules.layers_of(settings, module)]
        return _of_batch(module, settings, mode)._replace(layer_sizes=tuple(layer_sizes))
    except UserError:
        raise
    # Any operation of a model may fail without values.
    except Exception as problem:
        raise UserError(f"there is no forecast for {settings.workload}, which cannot be computed without data ({problem})") from None


def of_divided_step(settings: Settings, num_ranks: int) -> StepBytes:
    """Counts the step of a rank of tensor_parallel."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    module = _without_data(settings, mode)
    dist.init_process_group("fake", rank=0, world_size=num_ranks, store=FakeStore())
    try:
        divided_layers.divide(module, Ranks(0, num_ranks, 0, num_ranks, "forecast"), torch.device("cpu"))
        return _of_batch(module, settings, mode)
    finally:
        dist.destroy_process_group()


def _of_batch(module: nn.Module, settings: Settings, mode: FakeTensorMode) -> StepBytes:
    criterion = modules.Criterion(settings)
    with mode:
        inputs, targets, weights = _batch(settings, mode)
        return _counted(module, [inputs, targets, weights], lambda: criterion.loss(module(inputs), targets, weights))


def of_stages(settings: Settings, num_ranks: int) -> list[StepBytes]:
    """Counts a pass of a micro-batch through each stage of a pipeline of that many ranks."""
    model = workload_of(settings).model
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    module, criterion = _without_data(settings, mode), modules.Criterion(settings)
    stages = [pipeline_stages.stage(module, model, bounds) for bounds in pipelining.stages_of(model, num_ranks)]
    num_microbatches = parallelism.microbatches_of(settings)
    counted = []
    with mode:
        x, *samples = (tensor[: len(tensor) // num_microbatches] for tensor in _batch(settings, mode))
        for stage in stages:
            is_last = stage is stages[-1]
            loss = functools.partial(_loss_of_stage, criterion, stage, x, *(samples if is_last else ()))
            counted.append(_counted(stage, [x, *samples], loss))
            x = torch.empty_like(stage(x), requires_grad=True)
    return counted


def _loss_of_stage(criterion: modules.Criterion, stage: nn.Module, x: Tensor, *samples: Tensor) -> Tensor:
    """Returns the loss, or of a stage before the last one a number whose gradient is as large as what the next stage sends."""
    return criterion.loss(stage(x), *samples) if samples else stage(x).sum()


def _counted(module: nn.Module, batch: Any, loss: Callable[[], Tensor]) -> StepBytes:
    before = [*module.parameters(), *module.buffers(), *(tensor for tensor in tree_iter(batch) if isinstance(tensor, Tensor))]
    before = [getattr(tensor, "_local_tensor", tensor) for tensor in before]
    with Live(before) as live:
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(live.leave_out_gradient)
        value = loss()
        activations = live.now
        value.backward()
    return StepBytes(activations, live.peak, live.peak_without_gradients)


def _without_data(settings: Settings, mode: FakeTensorMode) -> nn.Module:
    """Builds the module of the settings with parameters and buffers without data."""
    try:
        with torch.device("meta"):
            module = modules.build(settings, "meta", ONE_RANK)
    # A file may need values to build its model.
    except UserError:
        module = modules.build(settings, "cpu", ONE_RANK)
    with mode:
        for layer in module.modules():
            for name, parameter in list(layer.named_parameters(recurse=False)):
                layer.register_parameter(name, nn.Parameter(torch.empty_like(parameter, device="cpu"), parameter.requires_grad))
            for name, buffer in list(layer.named_buffers(recurse=False)):
                is_persistent = name not in layer._non_persistent_buffers_set
                layer.register_buffer(name, torch.empty_like(buffer, device="cpu"), is_persistent)
    return module


def _batch(settings: Settings, mode: FakeTensorMode) -> list[Any]:
    workload = workload_of(settings)
    batch = batches.of_warm_up(workload.model, settings.batch_size or workload.batch_size, settings.precision)
    return [steps.mapped(lambda array: mode.from_tensor(torch.as_tensor(array)), arrays) for arrays in batch[:3]]

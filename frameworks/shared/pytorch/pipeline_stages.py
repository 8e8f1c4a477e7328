"""The stages of a model on the ranks of a pipeline, by torch.distributed.pipelining, and their communication."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar, final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, schedules
from torch.profiler import record_function

from common.config import Settings
from common.cost import parallelism
from common.model import pipelining
from common.model.description import Model, parts_of
from common.trainer import Batches, Communication, ProfiledCommunication, TensorBytes, Totals
from common.workloads import workload_of
from frameworks.shared.pytorch import modules, process_group, profiler, states, steps, tensor_bytes
from frameworks.shared.pytorch.pytorch_trainer import DistributedTrainer
from frameworks.shared.replaced import replaced

T = TypeVar("T")
SCHEDULES = {
    "1f1b": schedules.Schedule1F1B,
    "gpipe": schedules.ScheduleGPipe,
    "naive": schedules.ScheduleGPipe,
}
# The methods of a stage that compute: their names in traces.
COMPUTE = {"forward_one_chunk": "forward", "backward_one_chunk": "backward"}


class Stage(nn.Module):
    """Consecutive parts of a model. Its input and output are contiguous, as what is sent must be."""

    def __init__(self, parts: Sequence[Callable[[Tensor], Tensor]], layers: Iterable[nn.Module], mixed: bool) -> None:
        super().__init__()
        self.parts, self.layers, self.mixed = parts, nn.ModuleList(layers), mixed

    @modules.autocast
    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad:
            # A view has the hook, since the buffers of what is received, and their hooks, last for all steps.
            x = x.view_as(x)
            x.register_hook(torch.Tensor.contiguous)
        for part in self.parts:
            x = part(x)
        # Schedules detach it in place, which a view does not support.
        return x.clone(memory_format=torch.contiguous_format) if x._is_view() else x.contiguous()


class Pipeline:
    """This rank's stage of a model, and the schedule by which micro-batches pass the stages of all ranks of `group`.

    The module keeps only the parameters of the rank's own stage.
    """

    def __init__(self, settings: Settings, module: nn.Module, device: torch.device, group: dist.ProcessGroup | None = None) -> None:
        model = workload_of(settings).model
        self.device, self.group, self.rank, self.num_ranks = device, group, dist.get_rank(group), dist.get_world_size(group)
        self.num_microbatches = parallelism.microbatches_of(settings)
        stages = pipelining.stages_of(model, self.num_ranks)
        # The shape of what the stage before sends for one sample; the first stage has none.
        self.input_shape = parts_of(model)[stages[self.rank].start - 1].passed_shape if self.rank else None
        self.module = stage(module, model, stages[self.rank])
        keep(module, self.module)
        self.stage = PipelineStage(self.module, self.rank, self.num_ranks, device, group=group)
        for method, name in COMPUTE.items():
            setattr(self.stage, method, marked(getattr(self.stage, method), f"stage {self.rank} {name}"))
        self.loss = functools.partial(packed_loss, modules.Criterion(settings))
        self.schedule = SCHEDULES[settings.pipeline_schedule](self.stage, self.num_microbatches, loss_fn=self.loss, scale_grads=False)

    @property
    def is_last(self) -> bool:
        return self.rank == self.num_ranks - 1

    def step(self, inputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Adds the gradients of a batch to those of this rank's parameters; returns the loss, on every rank."""
        losses: list[Tensor] = []
        self.schedule.step(*([] if self.rank else [inputs]), target=packed(targets, weights), losses=losses, return_outputs=False)
        return self.shared(torch.stack(losses).sum().detach() if losses else weights.new_zeros(()))

    def shared(self, loss: Tensor) -> Tensor:
        """Returns the loss of the rank with the last stage, on every rank."""
        dist.broadcast(loss, group=self.group, group_src=self.num_ranks - 1)
        return loss

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor | None:
        """Returns the logits of a batch, on the rank with the last stage; None on the others."""
        # What is in bfloat16 is sent in the type of the parameters, which changes no value.
        dtype = next(self.module.parameters()).dtype
        if self.input_shape:
            x = torch.empty(len(x), *self.input_shape, dtype=dtype, device=self.device)
            dist.recv(x, group=self.group, group_src=self.rank - 1)
        x = self.module(x)
        if self.is_last:
            return x
        dist.send(x.to(dtype), group=self.group, group_dst=self.rank + 1)
        return None


def stage(module: Any, model: Model, bounds: pipelining.Stage) -> Stage:
    """Returns the Stage of a module, of frameworks/shared/networks/, with the parts of a Stage of common/model/pipelining.py."""
    parts = parts_of(model)[bounds.start : bounds.end]
    layers = [module.get_submodule(layer.name) for part in parts for layer in part.layers if layer.parameters]
    return Stage(module.parts()[bounds.start : bounds.end], layers, module.mixed)


def keep(module: nn.Module, stage: Stage) -> None:
    """Takes from a module the parameters that are not in the stage."""
    parameters = set(stage.parameters())
    for layer in module.modules():
        for name, parameter in list(layer.named_parameters(recurse=False)):
            if parameter not in parameters:
                setattr(layer, name, None)


class PipelineTrainer(DistributedTrainer):
    """A backend whose ranks have a stage of a model each: `pipeline` is this rank's Pipeline, and `module` has its parameters alone."""

    pipeline: Pipeline

    @final
    def evaluate(self, batches: Batches) -> Totals:
        """Does as steps.evaluate on the rank with the last stage, and returns zeros on the others."""
        self.module.eval()
        totals = torch.zeros(3, dtype=torch.float64, device=self.device)
        for inputs, targets, weights, _ in steps.tensors(batches, self.device):
            logits = self.pipeline.forward(inputs)
            if logits is not None:
                totals += self.criterion.totals(logits, targets, weights)
        return Totals(*totals.tolist())

    @final
    def state(self, with_optimizer_state: bool = True) -> dict[str, np.ndarray]:
        state_of_stages = states.gather(self.module, self.optimizer if with_optimizer_state else None)
        return process_group.united(state_of_stages, self.pipeline.group)

    @final
    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        states.restore(self.module, self.optimizer, state)

    @final
    def memory(self) -> AbstractContextManager[Mapping[str, TensorBytes]]:
        # The forward pass ends where this rank's stage has passed on the last micro-batch.
        return tensor_bytes.at_points(self.pipeline.module, self.optimizer)


def packed(targets: Tensor, weights: Tensor) -> Tensor:
    """Packs targets and weights into one tensor, which a schedule cuts into micro-batches; exact for targets below 2^24."""
    return torch.stack((targets.to(weights.dtype), weights), dim=-1)


def packed_loss(criterion: modules.Criterion, logits: Tensor, target: Tensor) -> Tensor:
    targets, weights = target.unbind(-1)
    return criterion.loss(logits, targets.long(), weights)


def marked(compute: Callable[..., T], name: str) -> Callable[..., T]:
    """Returns a method of a stage whose calls, one for each micro-batch, are spans in a trace of PyTorch's profiler."""

    def call(microbatch: int, *arguments: Any, **settings: Any) -> T:
        with record_function(f"{name} {microbatch}"):
            return compute(microbatch, *arguments, **settings)

    return call


def communication(trainer: PipelineTrainer, exchange: str | None = None) -> Communication:
    """Returns how to measure the communication of a pipeline, and of the trainer's method of the name `exchange`, if any, after a step.

    Without communication each stage computes on what it received last, and the losses are of no batch.
    """
    pipeline = trainer.pipeline

    def without_communication() -> AbstractContextManager[None]:
        alone = (schedules, "_batch_p2p", lambda ops, desc=None: []), (pipeline, "shared", lambda loss: loss)
        return replaced(*alone, *([(trainer, exchange, lambda: None)] if exchange else []))

    def profiled(train: Callable[[], None]) -> ProfiledCommunication:
        names = {name: name for name in ("broadcast", "all_reduce")}
        with process_group.counted({"_batch_p2p": "send"}, schedules) as sent, process_group.counted(names) as collectives:
            seconds, _ = profiler.collectives(train)
        return ProfiledCommunication(seconds, sent | collectives)

    return Communication(without_communication, profiled)

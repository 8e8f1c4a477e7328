"""What no library changes in a backend on PyTorch: its device, its process group, and what is done with a module and an optimizer."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, final

import numpy as np
import torch.distributed as dist
from torch import Tensor, nn

from common.config import Settings
from common.ranks.gpus import Device
from common.ranks.launcher_variables import from_environment
from common.trainer import Batches, Schedule, TensorBytes, Totals, Trainer
from frameworks.shared.pytorch import devices, modules, process_group, profiler, states, steps, tensor_bytes


class PyTorchTrainer(Trainer):
    """A backend on PyTorch.

    Its __init__ calls this one, builds `module` and `optimizer`, and wraps them as its library wants it. `model` computes the logits: the
    module, or what wraps it.
    """

    device_problems = (devices.device_problem,)
    mkl_kernels_problem = staticmethod(devices.mkl_kernels_problem)
    module: nn.Module
    # Of any class, since libraries wrap the module and the optimizer in classes of their own.
    model: Any
    optimizer: Any

    @abstractmethod
    def __init__(self, settings: Settings) -> None:
        self.ranks = from_environment()
        self.device = devices.pick_device(settings, self.ranks)
        self.accumulate = settings.accumulate
        self.criterion = modules.Criterion(settings)
        # The fields of the Device that the library changes.
        self.device_fields: dict[str, Any] = {}

    @final
    def describe_device(self) -> Device:
        return devices.describe_device(self.device)._replace(**self.device_fields)

    @final
    def loss(self, inputs: Any, targets: Any, weights: Tensor) -> Tensor:
        """Returns the weighted loss of a micro-batch, with which every backend begins its backward pass."""
        return self.criterion.loss(self.model(inputs), targets, weights)

    @final
    def profiled(self, folder: Path, schedule: Schedule) -> AbstractContextManager[Callable[[], None]]:
        return profiler.profiled(folder, self.ranks.rank, schedule)


class DistributedTrainer(PyTorchTrainer):
    """A backend on torch.distributed. The process group has begun when its __init__ has called this one."""

    # It begins the process group and returns its transport.
    begin = staticmethod(process_group.begin)

    @abstractmethod
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        transport = self.begin(settings, self.ranks, self.device)
        # Gradients may go over another one.
        self.transport = settings.transport or transport

    @final
    def sum(self, values: np.ndarray) -> np.ndarray:
        return process_group.summed(values, self.device)

    @final
    def close(self) -> None:
        dist.destroy_process_group()


class ModuleTrainer(PyTorchTrainer):
    """A backend whose module and optimizer have all parameters and optimizer state, as whole tensors or as PyTorch's sharded ones."""

    # Functions that make the library forget what it keeps from step to step. They are called where a state is restored.
    restarts: tuple[Callable[[], object], ...] = ()

    @final
    def evaluate(self, batches: Batches) -> Totals:
        return steps.evaluate(self.model, batches, self.device, self.criterion)

    @final
    def state(self, with_optimizer_state: bool = True) -> dict[str, np.ndarray]:
        return states.gather(self.module, self.optimizer if with_optimizer_state else None)

    @final
    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        states.restore(self.module, self.optimizer, state)
        for restart in self.restarts:
            restart()

    @final
    def memory(self) -> AbstractContextManager[Mapping[str, TensorBytes]]:
        return tensor_bytes.at_points(self.module, self.optimizer)

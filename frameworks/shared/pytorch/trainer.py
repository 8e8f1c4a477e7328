"""What no library changes in a backend on PyTorch: its device, its process group, and what is done with a module and an optimizer."""

from abc import abstractmethod
from typing import final

import torch.distributed as dist

from common.process.ranks import from_environment
from common.trainer import Trainer
from frameworks.shared.pytorch import devices, memory, process_group, states, steps


class PyTorchTrainer(Trainer):
    """A backend on PyTorch.

    Its __init__ calls this one, builds `module` and `optimizer`, and wraps them as its library wants it. `model` computes the logits: the
    module, or what wraps it.
    """

    device_problems = (devices.device_problem,)

    @abstractmethod
    def __init__(self, settings):
        self.ranks = from_environment()
        self.device = devices.pick_device(settings, self.ranks)
        self.accumulate = settings.accumulate
        # {field of the Device: what the library changes it to}
        self.device_fields = {}

    @final
    def describe_device(self):
        return devices.describe_device(self.device)._replace(**self.device_fields)


class OneProcessTrainer(PyTorchTrainer):
    """A backend of one process, which has no one to communicate with."""

    @final
    def sum(self, values):
        return values

    @final
    def communication(self):
        return None

    @final
    def close(self):
        pass


class DistributedTrainer(PyTorchTrainer):
    """A backend on torch.distributed. The process group has begun when its __init__ has called this one."""

    # What begins the process group and returns its transport.
    begin = staticmethod(process_group.begin)

    @abstractmethod
    def __init__(self, settings):
        super().__init__(settings)
        transport = self.begin(settings, self.ranks, self.device)
        # Gradients may go over another one.
        self.transport = settings.transport or transport

    @final
    def sum(self, values):
        return process_group.summed(values, self.device)

    @final
    def close(self):
        dist.destroy_process_group()


class ModuleTrainer(PyTorchTrainer):
    """A backend whose module and optimizer have all parameters and optimizer state, as whole tensors or as PyTorch's sharded ones."""

    # Functions that make the library forget what it keeps from step to step. They are called where a state is restored.
    restarts = ()

    @final
    def evaluate(self, batches):
        return steps.evaluate(self.model, batches, self.device)

    @final
    def state(self, with_optimizer_state=True):
        return states.gather(self.module, self.optimizer if with_optimizer_state else None)

    @final
    def restore(self, state):
        states.restore(self.module, self.optimizer, state)
        for restart in self.restarts:
            restart()

    @final
    def memory(self):
        return memory.at_points(self.module, self.optimizer)

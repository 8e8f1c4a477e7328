"""Gradients averaged by hand, in one all-reduce after the backward pass, over Gloo or MPI on CPUs and NCCL on GPUs."""

import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from common.config import Settings
from common.declarations import Backend, Setting
from common.trainer import Batches, Communication, Observe
from common.training.program import main
from frameworks.shared.pytorch import modules, mpi_tensors, process_group, steps
from frameworks.shared.pytorch.pytorch_trainer import DistributedTrainer, ModuleTrainer

BACKEND = Backend(
    settings=(Setting("transport", "what gradients go over on CPUs, instead of Gloo.", choices=("mpi",)),), transport="gloo",
    can_share_gpu=True, by_default=False, sharing="replicated", buffers="packed", change="nothing",
)  # fmt: skip


class Trainer(ModuleTrainer, DistributedTrainer):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.module = self.model = modules.build(settings, self.device, self.ranks)
        modules.reach_all_parameters(settings, self.module)
        self.optimizer = steps.leave_out_unused(steps.optimizer_for(settings, self.module), settings)
        self.all_reduce = mpi_tensors.begin(self.ranks, self.device) if self.transport == "mpi" else dist.all_reduce

    def train_epoch(self, batches: Batches, observe: Observe) -> None:
        self.model.train()
        for micro_batches, learning_rate in steps.in_micro_batches(batches, self.accumulate, self.device):
            steps.set_learning_rate(self.optimizer, learning_rate)
            self.optimizer.zero_grad()
            losses = []
            for inputs, targets, weights, is_last in micro_batches:
                loss = self.loss(inputs, targets, weights)
                loss.backward()
                losses.append(loss.detach())
            self.average_gradients()  # backend
            self.optimizer.step()
            observe(sum(losses))

    def average_gradients(self) -> None:
        gradients = [parameter.grad for parameter in self.module.parameters() if parameter.grad is not None]
        total = parameters_to_vector(gradients)
        self.all_reduce(total)
        vector_to_parameters(total / self.ranks.size, gradients)

    def communication(self) -> Communication:
        return process_group.communication_by_hand(self, "average_gradients", owner=self)


if __name__ == "__main__":
    main(Trainer, __file__)

"""Local SGD: each rank trains by itself, and parameters are averaged every few steps, over Gloo on CPUs and NCCL on GPUs."""

import itertools

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from common.config import Settings
from common.declarations import Backend, Setting
from common.trainer import Batches, Communication, Observe
from common.training.program import main
from frameworks.shared.pytorch import modules, process_group, steps
from frameworks.shared.pytorch.pytorch_trainer import DistributedTrainer, ModuleTrainer

BACKEND = Backend(
    settings=(Setting("averaging_period", "steps after which parameters are averaged, as after each epoch.", 8, (1, 2, 4, 8, 16)),),
    can_share_gpu=True, approximate=True, by_default=False,
    sharing="averaged", change="nothing",
)  # fmt: skip


class Trainer(ModuleTrainer, DistributedTrainer):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.module = self.model = modules.build(settings, self.device, self.ranks)
        self.optimizer = steps.optimizer_for(settings, self.module)
        self.period = settings.averaging_period

    def train_epoch(self, batches: Batches, observe: Observe) -> None:
        self.model.train()
        step = itertools.count(1)  # backend
        for micro_batches, learning_rate in steps.in_micro_batches(batches, self.accumulate, self.device):
            steps.set_learning_rate(self.optimizer, learning_rate)
            self.optimizer.zero_grad()
            losses = []
            for inputs, targets, weights, is_last in micro_batches:
                loss = self.loss(inputs, targets, weights)
                loss.backward()
                losses.append(loss.detach())
            self.optimizer.step()
            if next(step) % self.period == 0:  # backend
                self.average_weights()  # backend
            observe(sum(losses))
        self.average_weights()  # backend

    @torch.no_grad()
    def average_weights(self) -> None:
        weights = parameters_to_vector(self.module.parameters())
        dist.all_reduce(weights)
        vector_to_parameters(weights / self.ranks.size, self.module.parameters())

    def communication(self) -> Communication:
        return process_group.communication_by_hand(self, "average_weights")


if __name__ == "__main__":
    main(Trainer, __file__)

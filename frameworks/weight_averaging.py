"""Local SGD: each rank trains by itself, and parameters are averaged every few steps, over Gloo on CPUs and NCCL on GPUs."""  # backend

import itertools  # backend

import torch  # backend
import torch.distributed as dist  # backend
from torch.nn.utils import parameters_to_vector, vector_to_parameters  # backend

from common.backends import Backend
from common.process.ranks import from_environment
from common.process.rendezvous import agree_on_master  # backend
from common.training.program import main
from frameworks.shared.pytorch import process_group, pytorch  # backend

BACKEND = Backend(
    variants={"averaging_period": (1, 2, 4, 16)}, can_compile=True, can_share_gpu=True, approximate=True, by_default=False,
    sharing="averaged", change="nothing",
)  # fmt: skip  # backend


class Trainer:
    def __init__(self, settings):
        self.ranks = from_environment()
        self.device = pytorch.pick_device(settings, self.ranks)
        self.accumulate = settings.accumulate
        agree_on_master(self.ranks, settings.host_suffix)  # backend
        self.transport = process_group.transport_of(self.device, settings)  # backend
        dist.init_process_group(self.transport, rank=self.ranks.rank, world_size=self.ranks.size)  # backend
        self.module = self.model = pytorch.build(settings, self.device, self.ranks)
        self.optimizer = pytorch.optimizer_for(settings, self.module)
        self.period = settings.averaging_period  # backend

    @staticmethod
    def device_problem(device):
        return pytorch.device_problem(device)

    def describe_device(self):
        return pytorch.describe_device(self.device)

    def train_epoch(self, batches, observe):
        self.model.train()
        step = itertools.count(1)  # backend
        for micro_batches, learning_rate in pytorch.steps(batches, self.accumulate, self.device):
            pytorch.set_learning_rate(self.optimizer, learning_rate)
            self.optimizer.zero_grad()
            losses = []
            for inputs, targets, weights, is_last in micro_batches:
                loss = pytorch.weighted_loss(self.model(inputs), targets, weights)
                loss.backward()
                losses.append(loss.detach())
            self.optimizer.step()
            if next(step) % self.period == 0:  # backend
                self.average_weights()  # backend
            observe(sum(losses))
        self.average_weights()  # backend

    @torch.no_grad()  # backend
    def average_weights(self):  # backend
        weights = parameters_to_vector(self.module.parameters())  # backend
        dist.all_reduce(weights)  # backend
        vector_to_parameters(weights / self.ranks.size, self.module.parameters())  # backend

    def evaluate(self, batches):
        return pytorch.evaluate(self.model, batches, self.device)

    def sum(self, values):
        return process_group.summed(values, self.device)  # backend

    def state(self, with_optimizer_state=True):
        return pytorch.state(self.module, self.optimizer if with_optimizer_state else None)

    def restore(self, state):
        pytorch.restore(self.module, self.optimizer, state)

    def memory(self):
        return pytorch.memory(self.module, self.optimizer)

    def communication(self):
        return process_group.communication_by_hand(self, "average_weights", dist.all_reduce)  # backend

    def close(self):
        dist.destroy_process_group()  # backend


if __name__ == "__main__":
    main(Trainer, __file__)

"""Gradients averaged by hand, in one all-reduce after the backward pass, over Gloo or MPI on CPUs and NCCL on GPUs."""  # backend

import torch.distributed as dist  # backend
from torch.nn.utils import parameters_to_vector, vector_to_parameters  # backend

from common.backends import Backend
from common.process.ranks import from_environment
from common.process.rendezvous import agree_on_master  # backend
from common.training.program import main
from frameworks.shared.pytorch import mpi, process_group, pytorch  # backend

BACKEND = Backend(
    variants={"transport": ("mpi",)}, transport="gloo",
    can_compile=True, can_share_gpu=True, by_default=False, sharing="replicated", buffers="packed", change="nothing",
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
        self.transport = settings.transport or self.transport  # backend
        self.all_reduce = mpi.begin(self.ranks, self.device) if self.transport == "mpi" else dist.all_reduce  # backend

    @staticmethod
    def device_problem(device):
        return pytorch.device_problem(device)

    def describe_device(self):
        return pytorch.describe_device(self.device)

    def train_epoch(self, batches, observe):
        self.model.train()
        for micro_batches, learning_rate in pytorch.steps(batches, self.accumulate, self.device):
            pytorch.set_learning_rate(self.optimizer, learning_rate)
            self.optimizer.zero_grad()
            losses = []
            for inputs, targets, weights, is_last in micro_batches:
                loss = pytorch.weighted_loss(self.model(inputs), targets, weights)
                loss.backward()
                losses.append(loss.detach())
            self.average_gradients()  # backend
            self.optimizer.step()
            observe(sum(losses))

    def average_gradients(self):  # backend
        gradients = [parameter.grad for parameter in self.module.parameters()]  # backend
        total = parameters_to_vector(gradients)  # backend
        self.all_reduce(total)  # backend
        vector_to_parameters(total / self.ranks.size, gradients)  # backend

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
        return process_group.communication_by_hand(self, "average_gradients", self.all_reduce)  # backend

    def close(self):
        dist.destroy_process_group()  # backend


if __name__ == "__main__":
    main(Trainer, __file__)

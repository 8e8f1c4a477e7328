"""PyTorch's FSDP2, which shards parameters, gradients and optimizer state, over Gloo on CPUs and NCCL on GPUs."""  # backend

import torch.distributed as dist  # backend

from common.backends import Backend
from common.process.ranks import from_environment
from common.process.rendezvous import agree_on_master  # backend
from common.training.program import main
from frameworks.shared.pytorch import fsdp, process_group, pytorch  # backend

# Each gather of parameters is a hook, which breaks the graph.
BACKEND = Backend(
    variants={"sharding": ("keep", "hsdp"), "reduction": ("bf16",)}, approximate=("bf16",), multiple_of={"hsdp": 2}, by_default=False,
    sharing={"": "zero3", "keep": "zero2", "hsdp": "hybrid", "bf16": "zero3_two_bytes"}, buffers="gathered",
    change="fully_shard each block",
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
        self.sharding = settings.sharding  # backend
        fsdp.shard(self.module, self.sharding, settings.reduction, self.ranks, self.device)  # backend
        self.optimizer = pytorch.unfused(pytorch.optimizer_for(settings, self.module))  # backend

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
                self.model.set_requires_gradient_sync(is_last)  # backend
                loss = pytorch.weighted_loss(self.model(inputs), targets, weights)
                loss.backward()
                losses.append(loss.detach())
            self.optimizer.step()
            observe(sum(losses))

    def evaluate(self, batches):
        return pytorch.evaluate(self.model, batches, self.device)

    def sum(self, values):
        return process_group.summed(values, self.device)  # backend

    def state(self, with_optimizer_state=True):
        return pytorch.state(self.module, self.optimizer if with_optimizer_state else None)

    def restore(self, state):
        pytorch.restore(self.module, self.optimizer, state)

    def memory(self):
        return fsdp.memory(self.module, self.optimizer)  # backend

    def communication(self):
        return fsdp.communication(self.model, self.optimizer, self.device, self.sharding)  # backend

    def close(self):
        dist.destroy_process_group()  # backend


if __name__ == "__main__":
    main(Trainer, __file__)

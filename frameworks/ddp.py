"""PyTorch's DistributedDataParallel, over Gloo on CPUs and NCCL on GPUs."""  # backend

import torch.distributed as dist  # backend
from torch.nn.parallel import DistributedDataParallel  # backend

from common.program import main
from common.ranks import from_environment
from common.rendezvous import agree_on_master  # backend
from frameworks import distributed_side, torch_side  # backend


class Trainer:
    def __init__(self, settings):
        self.ranks = from_environment()
        self.device = torch_side.pick_device(settings, self.ranks)
        agree_on_master(self.ranks, settings.host_suffix)  # backend
        collectives = "nccl" if self.device.type == "cuda" else "gloo"  # backend
        dist.init_process_group(collectives, rank=self.ranks.rank, world_size=self.ranks.size)  # backend
        self.net = self.model = torch_side.build(settings, self.device, self.ranks)
        self.optimizer = torch_side.optimizer_for(settings, self.net)
        # The Transformer's buffers are tables of constants, which DDP would send at every step.
        self.model = DistributedDataParallel(self.net, forward_sync_buffers=False)  # backend

    def train_epoch(self, batches, observe):
        self.model.train()
        for inputs, targets, weights, rate in torch_side.tensors(batches, self.device):
            torch_side.set_learning_rate(self.optimizer, rate)
            self.optimizer.zero_grad()
            loss = torch_side.weighted_loss(self.model(inputs), targets, weights)
            loss.backward()
            self.optimizer.step()
            observe(loss.detach())

    def evaluate(self, batches):
        return torch_side.evaluate(self.model, batches, self.device)

    def sum(self, values):
        return distributed_side.summed(values, self.device)  # backend

    def state(self, with_slots=True):
        return torch_side.state(self.net, self.optimizer if with_slots else None)

    def restore(self, state):
        torch_side.restore(self.net, self.optimizer, state)

    def communication(self):
        return distributed_side.communication_of_ddp(self.model, self.device)  # backend

    def close(self):
        dist.destroy_process_group()  # backend


if __name__ == "__main__":
    main(Trainer, __file__)

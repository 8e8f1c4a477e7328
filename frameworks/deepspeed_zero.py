"""DeepSpeed's ZeRO, which divides what data parallelism keeps on every rank, over Gloo on CPUs and NCCL on GPUs."""  # backend

import deepspeed  # backend
import torch.distributed as dist  # backend

from common.program import main
from common.ranks import from_environment
from common.rendezvous import agree_on_master  # backend
from frameworks import deepspeed_side, distributed_side, torch_side  # backend


class Trainer:
    def __init__(self, settings):
        self.ranks = from_environment()
        self.device = torch_side.pick_device(settings, self.ranks)
        agree_on_master(self.ranks, settings.host_suffix)  # backend
        deepspeed_side.begin(settings, self.ranks, self.device)  # backend
        self.net = self.model = torch_side.build(settings, self.device, self.ranks)
        self.optimizer = torch_side.optimizer_for(settings, self.net)
        self.configuration = deepspeed_side.configuration(settings, self.ranks)  # backend
        self.model, self.optimizer, *_ = deepspeed.initialize(None, self.net, self.optimizer, config=self.configuration)  # backend

    def train_epoch(self, batches, observe):
        self.model.train()
        for inputs, targets, weights, rate in torch_side.tensors(batches, self.device):
            torch_side.set_learning_rate(self.optimizer, rate)
            self.optimizer.zero_grad()
            loss = torch_side.weighted_loss(self.model(inputs), targets, weights)
            self.model.backward(loss)  # backend
            self.model.step()  # backend
            observe(loss.detach())

    def evaluate(self, batches):
        return torch_side.evaluate(self.model, batches, self.device)

    def sum(self, values):
        return distributed_side.summed(values, self.device)  # backend

    def state(self, with_slots=True):
        return deepspeed_side.state(self.net, self.optimizer, with_slots)  # backend

    def restore(self, state):
        deepspeed_side.restore(self.net, self.optimizer, state)  # backend

    def communication(self):
        return deepspeed_side.communication(self.device)  # backend

    def close(self):
        dist.destroy_process_group()  # backend


if __name__ == "__main__":
    main(Trainer, __file__)

"""Horovod's DistributedOptimizer around a PyTorch optimizer, over MPI on CPUs and NCCL or MPI on GPUs."""  # backend

import horovod.torch as hvd  # backend
import torch  # backend

from common.program import main
from common.ranks import from_environment
from frameworks import horovod_side, torch_side  # backend


class Trainer:
    def __init__(self, settings):
        self.ranks = from_environment()
        self.device = torch_side.pick_device(settings, self.ranks)
        horovod_side.begin(hvd, settings, self.ranks)  # backend
        self.net = self.model = torch_side.build(settings, self.device, self.ranks)
        self.optimizer = torch_side.optimizer_for(settings, self.net)
        self.optimizer = hvd.DistributedOptimizer(self.optimizer, self.net.named_parameters(), op=hvd.Average)  # backend
        hvd.broadcast_parameters(self.net.state_dict(), root_rank=0)  # backend

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
        total = torch.tensor(values, dtype=torch.float64, device=self.device)  # backend
        return hvd.allreduce(total, op=hvd.Sum, name="sum").cpu().numpy()  # backend

    def state(self, with_slots=True):
        return torch_side.state(self.net, self.optimizer if with_slots else None)

    def restore(self, state):
        torch_side.restore(self.net, self.optimizer, state)

    def communication(self):
        return horovod_side.communication_of_torch(hvd, self)  # backend

    def close(self):
        hvd.shutdown()  # backend


if __name__ == "__main__":
    main(Trainer, __file__)

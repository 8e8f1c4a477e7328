"""Horovod's DistributedOptimizer around a PyTorch optimizer, over MPI or Gloo on CPUs and NCCL or MPI on GPUs."""  # backend

import horovod.torch as hvd  # backend
import torch  # backend

from common.backends import Backend
from common.process.ranks import from_environment
from common.training.program import main
from frameworks.shared.horovod import horovod  # backend
from frameworks.shared.pytorch import pytorch  # backend

BACKEND = Backend(
    variants={"transport": ("gloo",), "reduction": ("fp16", "adasum")}, approximate=("fp16", "adasum"), power_of_two=("adasum",),
    transport="mpi", needs_mpi=True, can_compile=True, sharing={"": "replicated", "fp16": "two_bytes"}, buffers="fusion",
    change="wrap the optimizer",
)  # fmt: skip  # backend


class Trainer:
    def __init__(self, settings):
        self.ranks = from_environment()
        self.device = pytorch.pick_device(settings, self.ranks)
        self.accumulate = settings.accumulate
        self.transport = horovod.begin(hvd, settings, self.ranks, on_gpu=self.device.type == "cuda")  # backend
        self.module = self.model = pytorch.build(settings, self.device, self.ranks)
        self.optimizer = pytorch.optimizer_for(settings, self.module)
        reduction = horovod.reduction(hvd, settings)  # backend
        self.optimizer = hvd.DistributedOptimizer(self.optimizer, self.module.named_parameters(), **reduction)  # backend
        hvd.broadcast_parameters(self.module.state_dict(), root_rank=0)  # backend
        # Needed only when rank 0 alone reads a checkpoint; here every rank reads it.
        hvd.broadcast_optimizer_state(self.optimizer, root_rank=0)  # backend

    @staticmethod
    def device_problem(device):
        return pytorch.device_problem(device) or horovod.device_problem(hvd, device)  # backend

    def describe_device(self):
        return pytorch.describe_device(self.device)._replace(nccl=horovod.nccl_version(hvd))  # backend

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
            self.optimizer.step()
            observe(sum(losses))

    def evaluate(self, batches):
        return pytorch.evaluate(self.model, batches, self.device)

    def sum(self, values):
        total = torch.tensor(values, dtype=torch.float64, device=self.device)  # backend
        return hvd.allreduce(total, op=hvd.Sum, name="sum").cpu().numpy()  # backend

    def state(self, with_optimizer_state=True):
        return pytorch.state(self.module, self.optimizer if with_optimizer_state else None)

    def restore(self, state):
        pytorch.restore(self.module, self.optimizer, state)

    def memory(self):
        return pytorch.memory(self.module, self.optimizer)

    def communication(self):
        return horovod.communication_of_torch(hvd, self)  # backend

    def close(self):
        horovod.end(hvd, self.ranks)  # backend


if __name__ == "__main__":
    main(Trainer, __file__)

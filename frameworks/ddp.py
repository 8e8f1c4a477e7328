"""PyTorch's DistributedDataParallel, over Gloo or MPI on CPUs and NCCL on GPUs."""  # backend

import torch.distributed as dist  # backend
from torch.nn.parallel import DistributedDataParallel  # backend

from common.backends import Backend
from common.process.ranks import from_environment
from common.process.rendezvous import agree_on_master  # backend
from common.training.program import main
from frameworks.shared.pytorch import ddp_hooks, process_group, pytorch  # backend

BACKEND = Backend(
    variants={"transport": ("mpi",), "reduction": ("fp16", "bf16", "powersgd")}, approximate=("fp16", "bf16", "powersgd"),
    transport="gloo", sharing={"": "replicated", "fp16": "two_bytes", "bf16": "two_bytes", "powersgd": None},
    buffers="buckets", change="wrap in DistributedDataParallel", can_compile=True, can_share_gpu=True,
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
        # The Transformer's buffers are constant tables, which DDP would broadcast at every step.
        self.model = DistributedDataParallel(self.module, forward_sync_buffers=False)  # backend
        self.transport = settings.transport or self.transport  # backend
        self.hook_state = ddp_hooks.register(self.model, settings, self.ranks, self.device)  # backend

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
                self.model.require_backward_grad_sync = is_last  # backend
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
        self.hook_state.restart()  # backend

    def memory(self):
        return pytorch.memory(self.module, self.optimizer)

    def communication(self):
        return ddp_hooks.communication(self)  # backend

    def close(self):
        dist.destroy_process_group()  # backend


if __name__ == "__main__":
    main(Trainer, __file__)

"""DistributedDataParallel with ZeroRedundancyOptimizer, which shards the optimizer state, over Gloo on CPUs and NCCL on GPUs."""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from common.backends import Backend
from common.training.program import main
from frameworks.shared.pytorch import process_group, pytorch, zero_redundancy
from frameworks.shared.pytorch.trainer import PyTorchTrainer

BACKEND = Backend(
    can_compile=True, can_share_gpu=True, by_default=False, sharing="zero1", buffers="buckets", deals=True,
    change="wrap in DistributedDataParallel, replace the optimizer",
)  # fmt: skip


class Trainer(PyTorchTrainer):
    def __init__(self, settings):
        super().__init__(settings)
        self.transport = process_group.begin(settings, self.ranks, self.device)
        self.module = self.model = pytorch.build(settings, self.device, self.ranks)
        self.optimizer = zero_redundancy.sharded(pytorch.optimizer_for(settings, self.module))
        # The Transformer's buffers are constant tables, which DDP would broadcast at every step.
        self.model = DistributedDataParallel(self.module, forward_sync_buffers=False)

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
        return process_group.summed(values, self.device)

    def state(self, with_optimizer_state=True):
        return zero_redundancy.state(self.module, self.optimizer) if with_optimizer_state else pytorch.state(self.module, None)

    def restore(self, state):
        pytorch.restore(self.module, self.optimizer, state)

    def memory(self):
        return pytorch.memory(self.module, self.optimizer)

    def communication(self):
        return zero_redundancy.communication(self.model, self.optimizer, self.device)

    def close(self):
        dist.destroy_process_group()


if __name__ == "__main__":
    main(Trainer, __file__)

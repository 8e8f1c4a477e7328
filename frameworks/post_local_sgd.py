"""PyTorch's post-local SGD: DistributedDataParallel at first, local SGD after some steps, over Gloo on CPUs and NCCL on GPUs."""  # backend

import torch.distributed as dist  # backend
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook  # backend
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager  # backend
from torch.distributed.optim import PostLocalSGDOptimizer  # backend
from torch.nn.parallel import DistributedDataParallel  # backend

from common.backends import Backend
from common.process.ranks import from_environment
from common.process.rendezvous import agree_on_master  # backend
from common.training.program import main
from frameworks.shared.pytorch import post_local_sgd, process_group, pytorch  # backend

BACKEND = Backend(
    variants={"averaging_period": (1, 2, 4, 16)}, can_compile=True, can_share_gpu=True, approximate=True, by_default=False,
    buffers="buckets", change="wrap in DistributedDataParallel with a hook, and wrap the optimizer",
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
        averager = PeriodicModelAverager(settings.averaging_period, settings.local_after)  # backend
        self.optimizer = PostLocalSGDOptimizer(pytorch.optimizer_for(settings, self.module), averager)  # backend
        # The Transformer's buffers are constant tables, which DDP would broadcast at every step.
        self.model = DistributedDataParallel(self.module, forward_sync_buffers=False)  # backend
        self.gradients = PostLocalSGDState(None, None, settings.local_after, post_local_gradient_allreduce=False)  # backend
        self.model.register_comm_hook(self.gradients, post_localSGD_hook)  # backend

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
        post_local_sgd.average(self.optimizer)  # backend

    def evaluate(self, batches):
        return pytorch.evaluate(self.model, batches, self.device)

    def sum(self, values):
        return process_group.summed(values, self.device)  # backend

    def state(self, with_optimizer_state=True):
        return pytorch.state(self.module, self.optimizer if with_optimizer_state else None)

    def restore(self, state):
        pytorch.restore(self.module, self.optimizer, state)
        self.gradients.iter = self.optimizer.averager.step = 0  # backend

    def memory(self):
        return pytorch.memory(self.module, self.optimizer.optim)  # backend

    def communication(self):
        return post_local_sgd.communication(self.model, self.optimizer, self.device)  # backend

    def close(self):
        dist.destroy_process_group()  # backend


if __name__ == "__main__":
    main(Trainer, __file__)

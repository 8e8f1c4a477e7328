"""PyTorch's post-local SGD: DistributedDataParallel at first, local SGD after some steps, over Gloo on CPUs and NCCL on GPUs."""

import functools

from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

from common.bounds import FROM_0
from common.config import Settings
from common.declarations import Backend, Setting
from common.trainer import Batches, Communication, Observe
from common.training.program import main
from frameworks.shared.pytorch import distributed_data_parallel, modules, steps
from frameworks.shared.pytorch.pytorch_trainer import DistributedTrainer, ModuleTrainer

BACKEND = Backend(
    settings=(
        Setting("averaging_period", "steps after which parameters are averaged, as after each epoch.", 8, (1, 2, 4, 8, 16)),
        Setting("local_after", "steps with averaged gradients before ranks train locally, also after --resume.", 50, bounds=FROM_0),
    ),
    can_share_gpu=True, approximate=True, by_default=False,
    buffers="buckets", change="wrap in DistributedDataParallel with a hook, and wrap the optimizer",
)  # fmt: skip


class Trainer(ModuleTrainer, DistributedTrainer):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.module = self.model = modules.build(settings, self.device, self.ranks)
        averager = PeriodicModelAverager(settings.averaging_period, settings.local_after)
        self.optimizer = PostLocalSGDOptimizer(steps.optimizer_for(settings, self.module), averager)
        self.configuration = distributed_data_parallel.options_for(settings, self.module)
        self.model = DistributedDataParallel(self.module, **self.configuration)
        self.gradients = PostLocalSGDState(None, None, settings.local_after, post_local_gradient_allreduce=False)
        self.model.register_comm_hook(self.gradients, post_localSGD_hook)
        self.restarts = (functools.partial(distributed_data_parallel.restart, self.optimizer, self.gradients),)

    def train_epoch(self, batches: Batches, observe: Observe) -> None:
        self.model.train()
        for micro_batches, learning_rate in steps.in_micro_batches(batches, self.accumulate, self.device):
            steps.set_learning_rate(self.optimizer, learning_rate)
            self.optimizer.zero_grad()
            losses = []
            for inputs, targets, weights, is_last in micro_batches:
                self.model.require_backward_grad_sync = is_last  # backend
                loss = self.loss(inputs, targets, weights)
                loss.backward()
                losses.append(loss.detach())
            self.optimizer.step()
            observe(sum(losses))
        distributed_data_parallel.average(self.optimizer)  # backend

    def communication(self) -> Communication:
        return distributed_data_parallel.communication_of_post_local_sgd(self.model, self.optimizer)


if __name__ == "__main__":
    main(Trainer, __file__)

"""DistributedDataParallel with ZeroRedundancyOptimizer, which shards the optimizer state, over Gloo on CPUs and NCCL on GPUs."""

from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from common.config import Settings
from common.declarations import Backend
from common.trainer import Batches, Communication, Observe
from common.training.program import main
from frameworks.shared.pytorch import distributed_data_parallel, modules, steps
from frameworks.shared.pytorch.pytorch_trainer import DistributedTrainer, ModuleTrainer

BACKEND = Backend(
    can_share_gpu=True, by_default=False, sharing="zero1", buffers="buckets", deals=True,
    change="wrap in DistributedDataParallel, replace the optimizer",
)  # fmt: skip


class Trainer(ModuleTrainer, DistributedTrainer):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.module = self.model = modules.build(settings, self.device, self.ranks)
        plain = steps.plain_optimizer_for(settings, self.module)
        # As a view of one buffer, the part of a rank is broadcast at once.
        options = steps.options_of(plain)
        self.optimizer = ZeroRedundancyOptimizer(plain.param_groups, type(plain), parameters_as_bucket_view=True, **options)
        steps.clip_before_steps(self.optimizer, settings)
        self.configuration = distributed_data_parallel.options_for(settings, self.module)
        self.model = DistributedDataParallel(self.module, **self.configuration)

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

    def communication(self) -> Communication:
        alone = [(self.optimizer, "_sync_params", lambda: None)]
        return distributed_data_parallel.communication_of_ddp(self.model, {"broadcast": "broadcast"}, replacements=alone)


if __name__ == "__main__":
    main(Trainer, __file__)

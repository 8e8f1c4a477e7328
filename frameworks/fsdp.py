"""PyTorch's FSDP2, which shards parameters, gradients and optimizer state, over Gloo on CPUs and NCCL on GPUs."""

from common.config import Settings
from common.declarations import Backend, Setting
from common.trainer import Batches, Communication, Observe
from common.training.program import main
from frameworks.shared.pytorch import fully_shard, modules, steps
from frameworks.shared.pytorch.pytorch_trainer import DistributedTrainer, ModuleTrainer

BACKEND = Backend(
    settings=(
        Setting(
            "sharding",
            "keep: parameters stay whole from forward to backward pass. Default: they are gathered for each pass.",
            choices=("keep",),
        ),
        Setting("reduction", "gradients are averaged in bfloat16.", choices=("bf16",)),
    ),
    approximate=("bf16",), by_default=False, sharing={"": "zero3", "keep": "zero2", "bf16": "zero3_two_bytes"},
    buffers="gathered", change="fully_shard each block",
)  # fmt: skip


class Trainer(ModuleTrainer, DistributedTrainer):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.module = self.model = modules.build(settings, self.device, self.ranks)
        self.sharding = settings.sharding
        fully_shard.shard(self.module, fully_shard.layers_of(settings, self.module), settings, self.device)
        self.optimizer = fully_shard.optimizer_for(settings, self.module)

    def train_epoch(self, batches: Batches, observe: Observe) -> None:
        self.model.train()
        for micro_batches, learning_rate in steps.in_micro_batches(batches, self.accumulate, self.device):
            steps.set_learning_rate(self.optimizer, learning_rate)
            self.optimizer.zero_grad()
            losses = []
            for inputs, targets, weights, is_last in micro_batches:
                self.model.set_requires_gradient_sync(is_last)  # backend
                loss = self.loss(inputs, targets, weights)
                loss.backward()
                losses.append(loss.detach())
            self.optimizer.step()
            observe(sum(losses))

    def communication(self) -> Communication:
        return fully_shard.communication(self.model, self.optimizer, self.sharding)


if __name__ == "__main__":
    main(Trainer, __file__)

"""PyTorch's FSDP2, which shards parameters, gradients and optimizer state, over Gloo on CPUs and NCCL on GPUs."""

from common.config import Settings
from common.declarations import Backend, Setting
from common.trainer import Batches, Communication, Observe
from common.training.program import main
from frameworks.shared.pytorch import fully_shard, modules, steps
from frameworks.shared.pytorch.pytorch_trainer import DistributedTrainer, ModuleTrainer

# Each gather of parameters is a hook, which breaks the graph.
BACKEND = Backend(
    settings=(
        Setting(
            "sharding",
            "keep: parameters stay whole from forward to backward pass; hsdp: a replica on each node, or two on one, each sharded. "
            "Default: parameters are gathered for each pass.",
            choices=("keep", "hsdp"),
        ),
        Setting("reduction", "gradients are averaged in bfloat16.", choices=("bf16",)),
        Setting("mixed_precision", "native: MixedPrecisionPolicy instead of autocast; not with --precision fp64.", choices=("native",)),
    ),
    approximate=("bf16", "native"),
    multiple_of={"hsdp": 2}, by_default=False, precisions={"native": "bf16"},
    sharing={"": "zero3", "keep": "zero2", "hsdp": "hybrid", "bf16": "zero3_two_bytes", "native": "zero3_gathered_in_two_bytes"},
    buffers="gathered", change="fully_shard each block",
)  # fmt: skip


class Trainer(ModuleTrainer, DistributedTrainer):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.module = self.model = modules.build(settings, self.device, self.ranks)
        self.sharding = settings.sharding
        layers, policy = fully_shard.layers_of(settings, self.module), fully_shard.policy_of(settings, self.module)
        fully_shard.shard(self.module, layers, self.sharding, policy, self.ranks, self.device)
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
        return fully_shard.communication(self.model, self.optimizer, self.device, self.sharding)


if __name__ == "__main__":
    main(Trainer, __file__)

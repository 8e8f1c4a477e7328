"""PyTorch's tensor parallelism, which divides the matrices of each layer over the ranks, over Gloo on CPUs and NCCL on GPUs."""

from common.config import Settings
from common.declarations import Backend
from common.trainer import Batches, Communication, Observe
from common.training.program import main
from frameworks.shared.pytorch import divided_layers, modules, steps
from frameworks.shared.pytorch.pytorch_trainer import DistributedTrainer, ModuleTrainer

# The ranks compute one model together, and so have one batch.
BACKEND = Backend(
    models=("Decoder",), untied=True, model_parallel="all", divides="num_heads", by_default=False,
    change="divide the matrices of each layer with parallelize_module; count a rank's own heads",
)  # fmt: skip


class Trainer(ModuleTrainer, DistributedTrainer):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.module = self.model = modules.build(settings, self.device, self.ranks)
        divided_layers.divide(self.module, self.ranks, self.device)
        self.optimizer = steps.unfused(steps.optimizer_for(settings, self.module))

    def train_epoch(self, batches: Batches, observe: Observe) -> None:
        self.model.train()
        for micro_batches, learning_rate in steps.in_micro_batches(batches, self.accumulate, self.device):
            steps.set_learning_rate(self.optimizer, learning_rate)
            self.optimizer.zero_grad()
            losses = []
            for inputs, targets, weights, is_last in micro_batches:
                loss = self.loss(inputs, targets, weights)
                loss.backward()
                losses.append(loss.detach())
            self.optimizer.step()
            observe(sum(losses))

    def communication(self) -> Communication:
        return divided_layers.communication(self.ranks)


if __name__ == "__main__":
    main(Trainer, __file__)

"""Plain PyTorch in one process: the baseline of every speed-up."""

from common.config import Settings
from common.declarations import Backend
from common.trainer import Batches, Observe, OneProcess
from common.training.program import main
from frameworks.shared.pytorch import modules, steps
from frameworks.shared.pytorch.pytorch_trainer import ModuleTrainer

BACKEND = Backend(library="none", can_share_gpu=True, one_rank=True, sharing="replicated", change="nothing")


class Trainer(OneProcess, ModuleTrainer):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.module = self.model = modules.build(settings, self.device, self.ranks)
        self.optimizer = steps.optimizer_for(settings, self.module)

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


if __name__ == "__main__":
    main(Trainer, __file__)

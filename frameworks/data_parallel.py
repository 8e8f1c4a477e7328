"""PyTorch's DataParallel: one process that computes on all GPUs of a node, each with a part of the batch."""

import torch
from torch.nn import DataParallel

from common.config import Settings
from common.declarations import Backend
from common.errors import UserError
from common.trainer import Batches, Observe, OneProcess
from common.training.program import main
from frameworks.shared.pytorch import modules, steps
from frameworks.shared.pytorch.pytorch_trainer import ModuleTrainer

BACKEND = Backend(one_rank=True, by_default=False, change="wrap in DataParallel")


def problem(device: str) -> str | None:
    """Returns why DataParallel is of no use on `cpu` or `cuda` here; None if it is."""
    num_gpus = torch.cuda.device_count() if device == "cuda" else 0
    return None if num_gpus > 1 else f"with {num_gpus} GPUs DataParallel would only call the module"


def gpus(device: torch.device) -> list[int]:
    """Returns the numbers of all GPUs, the one with the parameters first. Raises UserError where there are not several."""
    if reason := problem(device.type):
        raise UserError(f"{reason}; use single, or a node with several GPUs")
    return [device.index, *(index for index in range(torch.cuda.device_count()) if index != device.index)]


class Trainer(OneProcess, ModuleTrainer):
    device_problems = (*ModuleTrainer.device_problems, problem)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.module = self.model = modules.build(settings, self.device, self.ranks)
        self.optimizer = steps.optimizer_for(settings, self.module)
        self.model = DataParallel(self.module, gpus(self.device))
        # It computes on all GPUs.
        self.device_fields["product"] = None

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

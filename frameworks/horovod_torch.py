"""Horovod's DistributedOptimizer around a PyTorch optimizer, over MPI or Gloo on CPUs and NCCL or MPI on GPUs."""

import horovod.torch as hvd
import numpy as np
import torch

from common.config import Settings
from common.declarations import Backend, Setting
from common.trainer import Batches, Communication, Observe
from common.training.program import main
from frameworks.shared.horovod import horovod
from frameworks.shared.pytorch import modules, steps
from frameworks.shared.pytorch.pytorch_trainer import ModuleTrainer

BACKEND = Backend(
    library="Horovod",
    settings=(
        Setting("transport", "what gradients go over on CPUs, instead of MPI.", choices=("gloo",)),
        Setting("reduction", "gradients are averaged in float16.", choices=("fp16",)),
    ),
    approximate=("fp16",), transport="mpi", needs_mpi=True,
    sharing={"": "replicated", "fp16": "two_bytes"}, buffers="fusion", change="wrap the optimizer",
    library_settings={"HOROVOD_FUSION_THRESHOLD": (0, 1048576), "HOROVOD_CYCLE_TIME": (0.1, 5)},
)  # fmt: skip


class Trainer(ModuleTrainer):
    device_problems = (*ModuleTrainer.device_problems, lambda device: horovod.device_problem(hvd, device))

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.transport = horovod.begin(hvd, settings, self.ranks, on_gpu=self.device.type == "cuda")
        self.device_fields["nccl"] = horovod.nccl_version(hvd)
        self.module = self.model = modules.build(settings, self.device, self.ranks)
        horovod.expect_contiguous(self.module)
        self.optimizer = steps.plain_optimizer_for(settings, self.module)
        compression = hvd.Compression.fp16 if settings.reduction == "fp16" else hvd.Compression.none
        options = {"op": hvd.Average, "compression": compression, "backward_passes_per_step": settings.accumulate}
        self.optimizer = hvd.DistributedOptimizer(self.optimizer, self.module.named_parameters(), **options)
        steps.finish_synchronize(self.optimizer, settings)
        hvd.broadcast_parameters(self.module.state_dict(), root_rank=0)
        # Needed only when rank 0 alone reads a checkpoint; here every rank reads it.
        hvd.broadcast_optimizer_state(self.optimizer, root_rank=0)

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

    def sum(self, values: np.ndarray) -> np.ndarray:
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        return hvd.allreduce(total, op=hvd.Sum, name="sum").cpu().numpy()

    def communication(self) -> Communication:
        return horovod.communication_of_torch(hvd, self)

    def close(self) -> None:
        horovod.end(hvd, self.ranks)


if __name__ == "__main__":
    main(Trainer, __file__)

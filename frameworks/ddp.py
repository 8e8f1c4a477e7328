"""PyTorch's DistributedDataParallel, over Gloo or MPI on CPUs and NCCL on GPUs."""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from common.config import Settings, library_setting
from common.declarations import Backend, Setting
from common.trainer import Batches, Communication, Observe
from common.training.program import main
from frameworks.shared.pytorch import distributed_data_parallel, modules, mpi_tensors, steps
from frameworks.shared.pytorch.pytorch_trainer import DistributedTrainer, ModuleTrainer

BACKEND = Backend(
    settings=(
        Setting("transport", "what gradients go over on CPUs, instead of Gloo.", choices=("mpi",)),
        Setting("reduction", "gradients are averaged in float16 or bfloat16.", choices=("fp16", "bf16")),
    ),
    approximate=("fp16", "bf16"), transport="gloo", sharing={"": "replicated", "fp16": "two_bytes", "bf16": "two_bytes"},
    buffers="buckets", change="wrap in DistributedDataParallel", can_share_gpu=True,
    library_settings={"gradient_as_bucket_view": (True,), "static_graph": (True,), "bucket_cap_mb": (1, 100)},
)  # fmt: skip


class Trainer(ModuleTrainer, DistributedTrainer):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.module = self.model = modules.build(settings, self.device, self.ranks)
        self.optimizer = steps.optimizer_for(settings, self.module)
        self.configuration = distributed_data_parallel.options_for(settings, self.module) | library_setting(settings)
        self.model = DistributedDataParallel(self.module, **self.configuration)
        if self.transport == "mpi":
            mpi_tensors.begin(self.ranks, self.device)
        distributed_data_parallel.register_hook(self.model, settings)

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
        return distributed_data_parallel.communication_of_ddp(self.model, owner=mpi_tensors if self.transport == "mpi" else dist)


if __name__ == "__main__":
    main(Trainer, __file__)

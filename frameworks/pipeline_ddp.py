"""Pipelines of stages, by PyTorch's pipelining, and data parallelism over the pipelines, over Gloo on CPUs and NCCL on GPUs."""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from common.bounds import FROM_1, RANKS
from common.config import Settings
from common.declarations import Backend, Setting
from common.trainer import Batches, Communication, Observe
from common.training.program import main
from frameworks.shared.pytorch import modules, pipeline_stages, steps

BACKEND = Backend(
    settings=(
        Setting("stages", "ranks that compute one model together, a stage each.", 2, bounds=RANKS),
        Setting("microbatches", "micro-batches in a step.", 4, bounds=FROM_1),
    ),
    model_parallel="stages", pipelined=True, untied=True, by_default=False,
    change="cut the model into stages; a schedule runs the passes of a step; average the gradients of each stage",
)  # fmt: skip


class Trainer(pipeline_stages.PipelineTrainer):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.module = self.model = modules.build(settings, self.device, self.ranks)
        # Consecutive ranks are a pipeline.
        sizes = self.ranks.size // settings.stages, settings.stages
        mesh = init_device_mesh(self.device.type, sizes, mesh_dim_names=("replica", "stage"))
        self.replicas = mesh.get_group("replica")
        self.pipeline = pipeline_stages.Pipeline(settings, self.module, self.device, mesh.get_group("stage"))
        self.optimizer = steps.optimizer_for(settings, self.module)

    def train_epoch(self, batches: Batches, observe: Observe) -> None:
        self.model.train()
        for micro_batches, learning_rate in steps.in_micro_batches(batches, self.accumulate, self.device):
            steps.set_learning_rate(self.optimizer, learning_rate)
            self.optimizer.zero_grad()
            losses = []
            for inputs, targets, weights, is_last in micro_batches:
                loss = self.pipeline.step(inputs, targets, weights)  # backend
                losses.append(loss.detach())
            self.average_gradients()  # backend
            self.optimizer.step()
            observe(sum(losses))

    def average_gradients(self) -> None:
        gradients = [parameter.grad for parameter in self.module.parameters() if parameter.grad is not None]
        total = parameters_to_vector(gradients)
        dist.all_reduce(total, group=self.replicas)
        vector_to_parameters(total / self.replicas.size(), gradients)

    def communication(self) -> Communication:
        return pipeline_stages.communication(self, "average_gradients")


if __name__ == "__main__":
    main(Trainer, __file__)

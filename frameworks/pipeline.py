"""A model in stages, one per rank, by PyTorch's pipelining, over Gloo on CPUs and NCCL on GPUs."""

from common.bounds import FROM_1
from common.config import Settings
from common.declarations import Backend, Setting
from common.trainer import Batches, Communication, Observe
from common.training.program import main
from frameworks.shared.pytorch import modules, pipeline_stages, steps

BACKEND = Backend(
    settings=(
        Setting(
            "pipeline_schedule",
            "order in which micro-batches pass the stages; naive: one micro-batch.",
            "1f1b", ("1f1b", "gpipe", "naive"),
        ),
        Setting("microbatches", "micro-batches in a step.", 4, bounds=FROM_1),
    ),
    model_parallel="all", pipelined=True,
    untied=True, by_default=False, change="cut the model into stages; a schedule runs the passes of a step",
)  # fmt: skip


class Trainer(pipeline_stages.PipelineTrainer):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.module = self.model = modules.build(settings, self.device, self.ranks)
        self.pipeline = pipeline_stages.Pipeline(settings, self.module, self.device)
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
            self.optimizer.step()
            observe(sum(losses))

    def communication(self) -> Communication:
        return pipeline_stages.communication(self)


if __name__ == "__main__":
    main(Trainer, __file__)

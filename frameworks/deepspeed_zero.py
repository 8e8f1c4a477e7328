"""DeepSpeed's ZeRO, which shards optimizer state, gradients and parameters, over Gloo on CPUs and NCCL on GPUs."""

from collections.abc import Mapping
from contextlib import AbstractContextManager

import deepspeed
import numpy as np

from common.config import Settings
from common.declarations import Backend, Setting
from common.trainer import Batches, Communication, Observe, TensorBytes, Totals
from common.training.program import main
from frameworks.shared.deepspeed import configuration, engine
from frameworks.shared.pytorch import modules, steps
from frameworks.shared.pytorch.pytorch_trainer import DistributedTrainer

BACKEND = Backend(
    settings=(
        Setting("zero_stage", "ZeRO stage; 1 shards the optimizer state, 2 also the gradients, 3 also the parameters.", 1, (0, 1, 2, 3)),
        Setting("deepspeed_config", "JSON file of further settings of ZeRO, such as bucket sizes.", is_path=True, is_compared=False),
    ),
    float32_masters=True, same_parameters=("2", "3"), sharing={"": "zero1", "0": "replicated", "2": "zero2", "3": "zero3"},
    library_settings={
        "overlap_comm": (True,), "contiguous_gradients": (True,), "reduce_bucket_size": (262144,), "allgather_bucket_size": (262144,),
    },
    buffers="zero", change="wrap in DeepSpeed's engine",
)  # fmt: skip


class Trainer(DistributedTrainer):
    device_problems = (engine.device_problem,)
    begin = staticmethod(engine.begin)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.module = self.model = modules.build(settings, self.device, self.ranks)
        engine.expect_parameters(self.module)
        modules.reach_all_parameters(settings, self.module)
        self.optimizer = steps.plain_optimizer_for(settings, self.module)
        self.configuration = configuration.of(settings, self.ranks.size)
        # Otherwise deepspeed.initialize would accept float64 in stage 3 on some processors only.
        engine.partition(self.module, self.configuration)
        self.model, self.optimizer, *_ = deepspeed.initialize(None, self.module, self.optimizer, config=self.configuration)
        self.num_skipped_steps = lambda: self.model.skipped_steps

    def train_epoch(self, batches: Batches, observe: Observe) -> None:
        self.model.train()
        for micro_batches, learning_rate in steps.in_micro_batches(batches, self.accumulate, self.device):
            steps.set_learning_rate(self.optimizer, learning_rate)
            self.optimizer.zero_grad()
            losses = []
            for inputs, targets, weights, is_last in micro_batches:
                self.model.set_gradient_accumulation_boundary(is_last)  # backend
                loss = self.loss(inputs, targets, weights)
                self.model.backward(loss, scale_wrt_gas=False)  # backend
                losses.append(loss.detach())
            self.model.step()  # backend
            observe(sum(losses))

    def evaluate(self, batches: Batches) -> Totals:
        return steps.evaluate(self.model, batches, self.device, self.criterion)

    def state(self, with_optimizer_state: bool = True) -> dict[str, np.ndarray]:
        return engine.state(self.module, self.optimizer, with_optimizer_state)

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        engine.restore(self.module, self.optimizer, state)

    def memory(self) -> AbstractContextManager[Mapping[str, TensorBytes]]:
        return engine.memory_at_points(self.module, self.optimizer)

    def communication(self) -> Communication:
        return engine.communication(self.model)


if __name__ == "__main__":
    main(Trainer, __file__)

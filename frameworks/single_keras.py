"""Keras's compile and fit in one process: what `fit` alone changes against `single_tf`."""

import os

# Selects tf-keras (Keras 2), as for `horovod_keras`.
os.environ["TF_USE_LEGACY_KERAS"] = "1"


from common.config import Settings
from common.declarations import Backend
from common.trainer import Batches, Observe, OneProcess
from common.training.program import main
from frameworks.shared.tensorflow import keras
from frameworks.shared.tensorflow.optimizer import Optimizer
from frameworks.shared.tensorflow.tensorflow_trainer import TensorFlowTrainer

BACKEND = Backend(framework="Keras", library="none", by_default=False, one_rank=True, sharing="replicated", change="nothing")


class Trainer(OneProcess, TensorFlowTrainer):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.model = keras.build(settings, self.ranks)
        self.module = self.model.module
        self.optimizer = Optimizer(settings, self.module.parameters)
        self.model.compile(keras.Optimizer(self.optimizer, self.module.parameters), loss=keras.Loss(reduction="sum"))
        self.pipeline = keras.Pipeline()

    def train_epoch(self, batches: Batches, observe: Observe) -> None:
        dataset = self.pipeline.begin(batches)
        step = keras.Step(self.pipeline.learning_rates, observe)
        self.model.fit(dataset, steps_per_epoch=len(batches), verbose=0, callbacks=[step])


if __name__ == "__main__":
    main(Trainer, __file__)

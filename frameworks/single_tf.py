"""Plain TensorFlow in one process: what the framework alone changes against `single`."""

import tensorflow as tf

from common.config import Settings
from common.declarations import Backend
from common.trainer import Batches, Observe, OneProcess
from common.training.program import main
from frameworks.shared.tensorflow import losses, models
from frameworks.shared.tensorflow.optimizer import Optimizer
from frameworks.shared.tensorflow.tensorflow_trainer import TensorFlowTrainer

BACKEND = Backend(framework="TensorFlow", library="none", by_default=False, one_rank=True, sharing="replicated", change="nothing")


class Trainer(OneProcess, TensorFlowTrainer):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.module = models.build(settings, self.ranks)
        self.optimizer = Optimizer(settings, self.module.parameters)

    def train_epoch(self, batches: Batches, observe: Observe) -> None:
        for inputs, targets, weights, learning_rate in losses.tensors(batches, self.module):
            observe(self.train_step(inputs, targets, weights, learning_rate))

    @tf.function(reduce_retracing=True, autograph=False)
    def train_step(self, inputs: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor, learning_rate: tf.Tensor) -> tf.Tensor:
        parameters = self.module.parameters
        with tf.GradientTape() as tape:
            loss = losses.summed(self.loss, (inputs, targets, weights), list(parameters.values()), self.accumulate)
        self.optimizer.step(parameters, tape.gradient(loss, list(parameters.values())), learning_rate)
        return loss


if __name__ == "__main__":
    main(Trainer, __file__)

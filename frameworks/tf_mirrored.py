"""TensorFlow's MultiWorkerMirroredStrategy in a custom training loop, over gRPC on CPUs and NCCL on GPUs."""

import numpy as np
import tensorflow as tf

from common.config import Settings
from common.declarations import Backend
from common.trainer import Batches, Communication, Observe
from common.training.program import main
from frameworks.shared.tensorflow import losses, mirrored, models
from frameworks.shared.tensorflow.optimizer import Optimizer
from frameworks.shared.tensorflow.tensorflow_trainer import TensorFlowTrainer

BACKEND = Backend(
    framework="TensorFlow", needs_mpi=True, sharing="replicated", buffers="packed",
    change="build the model in the strategy's scope, average the gradients in its run",
)  # fmt: skip


class Trainer(TensorFlowTrainer):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.transport = "grpc" if self.gpu is None else "nccl"
        self.strategy = mirrored.begin(self.ranks, self.transport)
        self.average = mirrored.average
        # The strategy gives every rank the initial values of rank 0.
        with self.strategy.scope():
            self.module = models.build(settings, self.ranks)
            self.optimizer = Optimizer(settings, self.module.parameters)

    def train_epoch(self, batches: Batches, observe: Observe) -> None:
        for inputs, targets, weights, learning_rate in losses.tensors(batches, self.module):
            observe(self.train_step(inputs, targets, weights, learning_rate, self.average))

    @tf.function(reduce_retracing=True, autograph=False)
    def train_step(
        self, inputs: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor, learning_rate: tf.Tensor, average: mirrored.Average
    ) -> tf.Tensor:
        return self.strategy.run(self.replica_step, (inputs, targets, weights, learning_rate, average))

    def replica_step(
        self, inputs: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor, learning_rate: tf.Tensor, average: mirrored.Average
    ) -> tf.Tensor:
        parameters = self.module.parameters
        with tf.GradientTape() as tape:
            loss = losses.summed(self.loss, (inputs, targets, weights), list(parameters.values()), self.accumulate)
        gradients = average(tape.gradient(loss, list(parameters.values())))
        self.optimizer.step(parameters, gradients, learning_rate)
        return loss

    def sum(self, values: np.ndarray) -> np.ndarray:
        total = mirrored.summed(self.strategy, tf.constant(values, tf.float64)).numpy()
        # Another rank may still fetch its part from this one, which may be stopped next.
        mirrored.meet(self.ranks)
        return total

    def communication(self) -> Communication:
        return mirrored.communication(self)

    def close(self) -> None:
        # The service that coordinates the ranks ends with rank 0's process.
        mirrored.meet(self.ranks)


if __name__ == "__main__":
    main(Trainer, __file__)

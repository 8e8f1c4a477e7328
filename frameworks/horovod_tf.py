"""Horovod's DistributedGradientTape in a TensorFlow loop, over MPI or Gloo on CPUs and NCCL or MPI on GPUs."""

import os

# Horovod imports Keras, which is not used here; Keras 3 takes longer to import.
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from common.config import Settings
from common.declarations import Backend, Setting
from common.trainer import Batches, Communication, Observe
from common.training.program import main
from frameworks.shared.horovod import horovod
from frameworks.shared.replaced import replaced
from frameworks.shared.tensorflow import losses, models
from frameworks.shared.tensorflow.optimizer import Optimizer
from frameworks.shared.tensorflow.tensorflow_trainer import TensorFlowTrainer, remove_generated_files

BACKEND = Backend(
    framework="TensorFlow", library="Horovod",
    settings=(Setting("transport", "what gradients go over on CPUs, instead of MPI.", choices=("gloo",)),),
    transport="mpi", needs_mpi=True, sharing="replicated", buffers="fusion",
    library_settings={"HOROVOD_FUSION_THRESHOLD": (0, 1048576), "HOROVOD_CYCLE_TIME": (0.1, 5)}, change="wrap the gradient tape",
)  # fmt: skip


class Trainer(TensorFlowTrainer):
    device_problems = (*TensorFlowTrainer.device_problems, lambda device: horovod.device_problem(hvd, device))
    nccl = horovod.nccl_version(hvd)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.transport = horovod.begin(hvd, settings, self.ranks, on_gpu=self.gpu is not None)
        self.communicates = True
        self.module = models.build(settings, self.ranks)
        self.optimizer = Optimizer(settings, self.module.parameters)
        # The optimizer state is needed only when rank 0 alone reads a checkpoint; here every rank reads it.
        hvd.broadcast_variables([*self.module.parameters.values(), *self.optimizer.state.values()], root_rank=0)

    def train_epoch(self, batches: Batches, observe: Observe) -> None:
        for inputs, targets, weights, learning_rate in losses.tensors(batches, self.module):
            observe(self.train_step(inputs, targets, weights, learning_rate, self.communicates))

    @tf.function(reduce_retracing=True, autograph=False)
    def train_step(
        self, inputs: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor, learning_rate: tf.Tensor, communicates: bool
    ) -> tf.Tensor:
        parameters = self.module.parameters
        with tf.GradientTape() as tape:
            loss = losses.summed(self.loss, (inputs, targets, weights), list(parameters.values()), self.accumulate)
        if communicates:
            tape = hvd.DistributedGradientTape(tape, op=hvd.Average, sparse_as_dense=True)
        gradients = tape.gradient(loss, list(parameters.values()))
        self.optimizer.step(parameters, gradients, learning_rate)
        return loss

    def sum(self, values: np.ndarray) -> np.ndarray:
        return np.array(hvd.allreduce(tf.constant(values, tf.float64), op=hvd.Sum, name="sum"))

    def communication(self) -> Communication:
        return horovod.communication(hvd, self, lambda: replaced((self, "communicates", False)))

    def close(self) -> None:
        remove_generated_files()
        horovod.end(hvd, self.ranks)


if __name__ == "__main__":
    main(Trainer, __file__)

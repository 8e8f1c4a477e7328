"""Horovod's DistributedOptimizer and callbacks with Keras's compile and fit, over MPI or Gloo on CPUs and NCCL or MPI on GPUs."""

import os

# Selects tf-keras (Keras 2) for TensorFlow and Horovod: under Keras 3, Horovod 0.28's DistributedOptimizer never all-reduces.
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

from common.config import Settings
from common.declarations import Backend, Setting
from common.trainer import Batches, Communication, Observe
from common.training.program import main
from frameworks.shared.horovod import horovod
from frameworks.shared.tensorflow import keras
from frameworks.shared.tensorflow.optimizer import Optimizer
from frameworks.shared.tensorflow.tensorflow_trainer import TensorFlowTrainer, remove_generated_files

BACKEND = Backend(
    framework="Keras", library="Horovod",
    settings=(Setting("transport", "what gradients go over on CPUs, instead of MPI.", choices=("gloo",)),),
    transport="mpi", needs_mpi=True, sharing="replicated", buffers="fusion",
    library_settings={"HOROVOD_FUSION_THRESHOLD": (0, 1048576), "HOROVOD_CYCLE_TIME": (0.1, 5)}, change="wrap the optimizer, add callbacks",
)  # fmt: skip


class Trainer(TensorFlowTrainer):
    device_problems = (*TensorFlowTrainer.device_problems, lambda device: horovod.device_problem(hvd, device))
    nccl = horovod.nccl_version(hvd)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.transport = horovod.begin(hvd, settings, self.ranks, on_gpu=self.gpu is not None)
        self.model = keras.build(settings, self.ranks)
        self.module = self.model.module
        self.optimizer = Optimizer(settings, self.module.parameters)
        optimizer = keras.Optimizer(self.optimizer, self.module.parameters)
        distributed = hvd.DistributedOptimizer(optimizer, op=hvd.Average, sparse_as_dense=True)
        self.model.compile(distributed, loss=keras.Loss(reduction="sum"))
        self.callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
        self.pipeline = keras.Pipeline()

    def train_epoch(self, batches: Batches, observe: Observe) -> None:
        dataset = self.pipeline.begin(batches)
        callbacks = [*self.callbacks, keras.Step(self.pipeline.learning_rates, observe)]
        self.model.fit(dataset, steps_per_epoch=len(batches), verbose=0, callbacks=callbacks)

    def sum(self, values: np.ndarray) -> np.ndarray:
        return np.array(hvd.allreduce(tf.constant(values, tf.float64), op=hvd.Sum, name="sum"))

    def communication(self) -> Communication:
        return horovod.communication(hvd, self, keras.without_communication(self))

    def close(self) -> None:
        remove_generated_files()
        horovod.end(hvd, self.ranks)


if __name__ == "__main__":
    main(Trainer, __file__)

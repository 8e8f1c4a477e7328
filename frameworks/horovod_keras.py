"""Horovod's DistributedOptimizer and callbacks with Keras's compile and fit, over MPI or Gloo on CPUs and NCCL or MPI on GPUs."""

import os

# Selects tf-keras (Keras 2) for TensorFlow and Horovod: under Keras 3, Horovod 0.28's DistributedOptimizer never all-reduces.
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import horovod.tensorflow.keras as hvd
import tensorflow as tf

from common.backends import Backend
from common.process.ranks import from_environment
from common.training.program import main
from frameworks.shared.horovod import horovod
from frameworks.shared.tensorflow import keras, tensorflow

BACKEND = Backend(
    variants={"transport": ("gloo",)}, transport="mpi", needs_mpi=True, sharing="replicated", buffers="fusion",
    change="wrap the optimizer, add callbacks",
)  # fmt: skip


class Trainer:
    def __init__(self, settings):
        self.ranks = from_environment()
        self.gpu = tensorflow.pick_device(settings, self.ranks)
        self.transport = horovod.begin(hvd, settings, self.ranks, on_gpu=self.gpu is not None)
        self.model = keras.build(settings, self.ranks)
        self.optimizer = keras.optimizer_for(settings, self.model)
        distributed = hvd.DistributedOptimizer(self.optimizer, op=hvd.Average, sparse_as_dense=True)
        self.model.compile(distributed, loss=keras.Loss(reduction="sum"))
        self.callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
        self.pipeline = keras.Pipeline()

    @staticmethod
    def device_problem(device):
        return tensorflow.device_problem(device) or horovod.device_problem(hvd, device)

    def describe_device(self):
        return tensorflow.describe_device(self.gpu, horovod.nccl_version(hvd))

    def train_epoch(self, batches, observe):
        dataset = self.pipeline.begin(batches)
        callbacks = [*self.callbacks, keras.Schedule(self.pipeline.learning_rates), keras.Observer(observe)]
        self.model.fit(dataset, steps_per_epoch=len(batches), verbose=0, callbacks=callbacks)

    def evaluate(self, batches):
        return tensorflow.evaluate(self.model.module, batches)

    def sum(self, values):
        return hvd.allreduce(tf.constant(values, tf.float64), op=hvd.Sum, name="sum").numpy()

    def state(self, with_optimizer_state=True):
        return tensorflow.state(self.model.module, self.optimizer.rule if with_optimizer_state else None)

    def restore(self, state):
        tensorflow.restore(self.model.module, self.optimizer.rule, state)

    def memory(self):
        return tensorflow.memory(self.model.module, self.optimizer.rule)

    def communication(self):
        return horovod.communication_of_tensorflow(hvd, self, keras.without_communication(self))

    def close(self):
        tensorflow.remove_generated_files()
        horovod.end(hvd, self.ranks)


if __name__ == "__main__":
    main(Trainer, __file__)

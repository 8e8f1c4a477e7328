"""Horovod's DistributedGradientTape in a TensorFlow loop, over MPI or Gloo on CPUs and NCCL or MPI on GPUs."""

import contextlib
import os

# Horovod imports Keras, which is not used here; Keras 3 takes longer to import, since it imports scikit-learn.
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import horovod.tensorflow as hvd
import tensorflow as tf

from common.backends import Backend
from common.process.ranks import from_environment
from common.training.program import main
from frameworks.shared.horovod import horovod
from frameworks.shared.tensorflow import tensorflow

BACKEND = Backend(
    variants={"transport": ("gloo",)}, transport="mpi", needs_mpi=True, sharing="replicated", buffers="fusion",
    change="wrap the gradient tape",
)  # fmt: skip


class Trainer:
    def __init__(self, settings):
        self.ranks = from_environment()
        self.gpu = tensorflow.pick_device(settings, self.ranks)
        self.transport = horovod.begin(hvd, settings, self.ranks, on_gpu=self.gpu is not None)
        self.communicates = True
        self.accumulate, self.dropout = settings.accumulate, settings.dropout
        self.model = tensorflow.build(settings, self.ranks)
        self.optimizer = tensorflow.Optimizer(settings, self.model.parameters)
        # The optimizer state is needed only when rank 0 alone reads a checkpoint; here every rank reads it.
        hvd.broadcast_variables([*self.model.parameters.values(), *self.optimizer.state.values()], root_rank=0)

    @staticmethod
    def device_problem(device):
        return tensorflow.device_problem(device) or horovod.device_problem(hvd, device)

    def describe_device(self):
        return tensorflow.describe_device(self.gpu, horovod.nccl_version(hvd))

    def train_epoch(self, batches, observe):
        for inputs, targets, weights, learning_rate in tensorflow.tensors(batches, self.model):
            observe(self.train_step(inputs, targets, weights, learning_rate, self.communicates))

    @tf.function(reduce_retracing=True)
    def train_step(self, inputs, targets, weights, learning_rate, communicates):
        parameters = self.model.parameters
        with tf.GradientTape() as tape:
            loss = tensorflow.summed(self.loss, (inputs, targets, weights), list(parameters.values()), self.accumulate)
        if communicates:
            tape = hvd.DistributedGradientTape(tape, op=hvd.Average, sparse_as_dense=True)
        gradients = tape.gradient(loss, list(parameters.values()))
        self.optimizer.step(parameters, gradients, learning_rate)
        return loss

    def loss(self, inputs, targets, weights):
        return tensorflow.weighted_loss(self.model.forward(self.model.parameters, inputs, self.dropout), targets, weights)

    def evaluate(self, batches):
        return tensorflow.evaluate(self.model, batches)

    def sum(self, values):
        return hvd.allreduce(tf.constant(values, tf.float64), op=hvd.Sum, name="sum").numpy()

    def state(self, with_optimizer_state=True):
        return tensorflow.state(self.model, self.optimizer if with_optimizer_state else None)

    def restore(self, state):
        tensorflow.restore(self.model, self.optimizer, state)

    def memory(self):
        return tensorflow.memory(self.model, self.optimizer)

    def communication(self):
        return horovod.communication_of_tensorflow(hvd, self, self.without_communication)

    @contextlib.contextmanager
    def without_communication(self):
        """Context in which gradients are not all-reduced."""
        self.communicates = False
        yield
        self.communicates = True

    def close(self):
        tensorflow.remove_generated_files()
        horovod.end(hvd, self.ranks)


if __name__ == "__main__":
    main(Trainer, __file__)

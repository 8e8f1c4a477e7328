"""Horovod's DistributedGradientTape in a TensorFlow loop, over MPI on CPUs and NCCL or MPI on GPUs."""

import contextlib

import horovod.tensorflow as hvd
import tensorflow as tf

from common.program import main
from common.ranks import from_environment
from frameworks import horovod_side, tf_side


class Trainer:
    def __init__(self, settings):
        self.ranks = from_environment()
        tf_side.pick_device(settings, self.ranks)
        horovod_side.begin(hvd, settings, self.ranks)
        self.exchanges = True
        self.dropout = settings.dropout
        self.model = tf_side.build(settings, self.ranks)
        self.optimizer = tf_side.Optimizer(settings, self.model.parameters)
        hvd.broadcast_variables(list(self.model.parameters.values()), root_rank=0)

    def train_epoch(self, batches, observe):
        for inputs, targets, weights, rate in tf_side.tensors(batches, self.model):
            observe(self.train_step(inputs, targets, weights, rate, self.exchanges))

    @tf.function(reduce_retracing=True)
    def train_step(self, inputs, targets, weights, rate, exchanges):
        parameters = self.model.parameters
        with tf.GradientTape() as tape:
            loss = tf_side.weighted_loss(self.model.forward(parameters, inputs, self.dropout), targets, weights)
        if exchanges:
            tape = hvd.DistributedGradientTape(tape, op=hvd.Average, sparse_as_dense=True)
        gradients = tape.gradient(loss, list(parameters.values()))
        self.optimizer.step(parameters, gradients, rate)
        return loss

    def evaluate(self, batches):
        return tf_side.evaluate(self.model, batches)

    def sum(self, values):
        return hvd.allreduce(tf.constant(values, tf.float64), op=hvd.Sum, name="sum").numpy()

    def state(self, with_slots=True):
        return tf_side.state(self.model, self.optimizer if with_slots else None)

    def restore(self, state):
        tf_side.restore(self.model, self.optimizer, state)

    def communication(self):
        return horovod_side.communication_of_tensorflow(hvd, self, self.alone)

    @contextlib.contextmanager
    def alone(self):
        """Within it the gradients are this rank's own."""
        self.exchanges = False
        yield
        self.exchanges = True

    def close(self):
        hvd.shutdown()


if __name__ == "__main__":
    main(Trainer, __file__)

"""Horovod's tensorflow2_mnist example: tf.data, a tf.function with DistributedGradientTape, a broadcast after the first batch."""

import os
from itertools import islice

# The example is for Keras 2. Read by TensorFlow when it is imported.
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import horovod.tensorflow as hvd
import tensorflow as tf

from tests.bench.vendor_loops import keras_parts, shared


def train(work):
    keras_parts.set_threads(work)
    hvd.init()
    model = keras_parts.cnn()
    loss = tf.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.optimizers.SGD(work.learning_rate, momentum=work.settings.momentum)
    batches = iter(keras_parts.dataset(work))

    @tf.function
    def training_step(images, labels, first_batch):
        with tf.GradientTape() as tape:
            loss_value = loss(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss_value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        if first_batch:
            hvd.broadcast_variables(model.variables, root_rank=0)
            hvd.broadcast_variables(optimizer.variables(), root_rank=0)
        return loss_value

    def train_epoch(epoch):
        for step, (images, labels) in enumerate(islice(batches, work.steps)):
            loss_value = training_step(images, labels, epoch == 0 and step == 0)
        # Once this is a number, the last step is done.
        float(loss_value)

    shared.measure(work, train_epoch)
    # The first rank to leave Horovod may end the others before rank 0 has printed.
    hvd.allreduce(tf.constant(0.0), name="end")
    hvd.shutdown()


if __name__ == "__main__":
    shared.main(train)

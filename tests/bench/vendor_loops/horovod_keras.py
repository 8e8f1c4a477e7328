"""Horovod's tensorflow2_keras_mnist example: Keras's compile and fit with DistributedOptimizer and Horovod's callbacks."""

import os
import time

# Horovod never all-reduces under Keras 3. Read by TensorFlow when it is imported.
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import horovod.tensorflow.keras as hvd
import tensorflow as tf

from tests.bench.vendor_loops import keras_parts, shared


class Stopwatch(tf.keras.callbacks.Callback):
    """Seconds of all epochs of fit but the first, which warms up."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.begun = time.perf_counter()

    def on_train_end(self, logs=None):
        self.seconds = time.perf_counter() - self.begun


def train(work):
    keras_parts.set_threads(work)
    hvd.init()
    model = keras_parts.cnn()
    optimizer = hvd.DistributedOptimizer(tf.optimizers.SGD(work.learning_rate, momentum=work.settings.momentum))
    model.compile(loss=tf.losses.SparseCategoricalCrossentropy(from_logits=True), optimizer=optimizer)
    stopwatch = Stopwatch()
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        # Its correction of the momentum needs a variable, which the momentum of today's SGD is not.
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=work.learning_rate, warmup_epochs=3, momentum_correction=False),
        stopwatch,
    ]
    model.fit(keras_parts.dataset(work), steps_per_epoch=work.steps, callbacks=callbacks, epochs=1 + work.settings.epochs, verbose=0)
    shared.report(work, stopwatch.seconds)
    # The first rank to leave Horovod may end the others before rank 0 has printed.
    hvd.allreduce(tf.constant(0.0), name="end")
    hvd.shutdown()


if __name__ == "__main__":
    shared.main(train)

"""Horovod's DistributedOptimizer and callbacks around Keras's compile and fit, over MPI on CPUs and NCCL or MPI on GPUs.

Keras is tf-keras here, the last of Keras 2: under Keras 3, Horovod 0.28's DistributedOptimizer runs and never all-reduces, so
that every rank trains alone.
"""

import contextlib
import itertools
import os
from collections import deque

# Read by TensorFlow when it is imported; Horovod takes the Keras that TensorFlow then shows.
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from tensorflow import keras

from common.program import main
from common.ranks import from_environment
from frameworks import horovod_side, tf_side

BATCHES_AT_ONCE = 16


class Trainer:
    def __init__(self, settings):
        self.ranks = from_environment()
        tf_side.pick_device(settings, self.ranks)
        horovod_side.begin(hvd, settings, self.ranks)
        expect_keras_2()
        keras.backend.set_floatx(tf_side.DTYPES[settings.precision].name)
        self.net = tf_side.build(settings, self.ranks)
        self.rule = tf_side.Optimizer(settings, self.net.parameters)
        optimizer = hvd.DistributedOptimizer(SharedRule(self.rule, self.net.parameters), op=hvd.Average, sparse_as_dense=True)
        self.model = compiled(self.net, settings.dropout, optimizer)
        self.samples = Samples()
        horovods = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
        self.callbacks = [*horovods, Schedule(self.samples.rates)]

    def train_epoch(self, batches, observe):
        self.model.fit(self.samples.begin(batches), steps_per_epoch=len(batches), verbose=0, callbacks=[*self.callbacks, Observer(observe)])

    def evaluate(self, batches):
        return tf_side.evaluate(self.net, batches)

    def sum(self, values):
        return hvd.allreduce(tf.constant(values, tf.float64), op=hvd.Sum, name="sum").numpy()

    def state(self, with_slots=True):
        return tf_side.state(self.net, self.rule if with_slots else None)

    def restore(self, state):
        tf_side.restore(self.net, self.rule, state)

    def communication(self):
        model = compiled(self.net, self.model.dropout, SharedRule(self.rule, self.net.parameters))
        return horovod_side.communication_of_tensorflow(hvd, self, lambda: self.alone(model))

    @contextlib.contextmanager
    def alone(self, model):
        """Within it a model without Horovod is trained, on the same parameters."""
        together = self.model, self.callbacks
        self.model, self.callbacks = model, [Schedule(self.samples.rates)]
        yield
        self.model, self.callbacks = together

    def close(self):
        hvd.shutdown()


def compiled(net, dropout, optimizer):
    """A Model that is ready for fit."""
    model = Model(net, dropout)
    model.compile(optimizer, loss=Loss(reduction="sum"))
    return model


class Model(keras.Model):
    """A model of tf_side.py as Keras takes it."""

    def __init__(self, net, dropout):
        super().__init__()
        self.net, self.dropout = net, dropout

    def call(self, inputs, training=False):
        return self.net.forward(self.net.parameters, inputs, self.dropout and training)

    def train_step(self, data):
        """Keras's own step, but that it tells the loss of this step instead of the mean of the epoch so far."""
        inputs, targets, weights = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(inputs, targets, self(inputs, training=True), weights)
        self.optimizer.minimize(loss, self.trainable_variables, tape)
        return {"loss": loss}


class Loss(keras.losses.Loss):
    """The losses of tf_side.py, which Keras multiplies with the weights and adds up."""

    def call(self, y_true, y_pred):
        # fit has made a column of a batch's labels.
        labels = tf.squeeze(y_true, -1) if y_true.dtype.is_integer and y_true.shape.rank == y_pred.shape.rank else y_true
        return tf_side.losses(y_pred, labels)


class SharedRule(keras.optimizers.Optimizer):
    """The update rules that all backends share (tf_side.Optimizer), as an optimizer of Keras.

    Keras's own SGD and Adam have other rules; see common/conventions.py.
    """

    def __init__(self, rule, parameters):
        super().__init__(name="SharedRule", jit_compile=False)
        self._learning_rate = self._build_learning_rate(0.0)
        self.rule, self.parameters = rule, parameters
        self.name_of = {parameter.ref(): name for name, parameter in parameters.items()}

    def update_step(self, gradient, variable):
        self.rule.update(self.name_of[variable.ref()], variable, gradient, tf.cast(self.learning_rate, gradient.dtype))

    def get_config(self):
        """What Horovod makes its own class of this optimizer from."""
        return {"rule": self.rule, "parameters": self.parameters}


class Samples:
    """The batches of an epoch as a data set for fit, made once, and their learning rates, there before fit asks for the batch.

    Batches are handed over many at once, since each call from TensorFlow into Python costs milliseconds. Not by
    Dataset.from_generator, which sets the C library's allocator back for the whole process.
    """

    def __init__(self):
        self.rates, self.dataset = deque(), None

    def begin(self, batches):
        """The data set of another epoch, of which as many batches are to be read as there are."""
        self.batches = iter(batches)
        self.ahead = self._some()
        if self.dataset is None:
            self.dataset = self._made(self.ahead)
        return self.dataset

    def _some(self):
        """The inputs, targets and weights of the next batches, each in one array."""
        batches = list(itertools.islice(self.batches, BATCHES_AT_ONCE))
        self.rates.extend(batch.learning_rate for batch in batches)
        return [np.stack(arrays) for arrays in list(zip(*batches, strict=True))[:3]]

    def _read(self):
        arrays, self.ahead = self.ahead, self._some()
        return arrays

    def _made(self, like):
        def read(_):
            arrays = tf.numpy_function(self._read, [], [array.dtype for array in like])
            return tuple(tf.ensure_shape(array, (None, None, *one.shape[2:])) for array, one in zip(arrays, like, strict=True))

        options = tf.data.Options()
        # Its thread would take time from the one core that a rank has.
        options.autotune.enabled = False
        # Nothing here gains from rewriting the pipeline, which every call of fit would have done anew.
        options.experimental_optimization.apply_default_optimizations = False
        return tf.data.Dataset.counter().map(read).unbatch().with_options(options)


class Schedule(keras.callbacks.Callback):
    """The shared schedule: the rate of each step, told to the optimizer where it changes."""

    def __init__(self, rates):
        super().__init__()
        self.rates, self.rate = rates, None

    def on_train_batch_begin(self, batch, logs=None):
        rate = self.rates.popleft()
        if rate != self.rate:
            self.model.optimizer.learning_rate.assign(rate)
            self.rate = rate


class Observer(keras.callbacks.Callback):
    """Tells the loss of each step."""

    def __init__(self, observe):
        super().__init__()
        self.observe = observe

    def on_train_batch_end(self, batch, logs=None):
        self.observe(logs["loss"])


def expect_keras_2():
    """Raises RuntimeError where TensorFlow was imported before this file and shows another Keras."""
    if keras.Model.__module__.partition(".")[0] != "tf_keras":
        raise RuntimeError("Horovod never all-reduces under Keras 3; set TF_USE_LEGACY_KERAS=1 before TensorFlow is imported")


if __name__ == "__main__":
    main(Trainer, __file__)

"""Model, loss, optimizer, input pipeline and callbacks for Keras's compile and fit.

Keras is tf-keras, the last release of Keras 2. Set TF_USE_LEGACY_KERAS=1 before TensorFlow is imported.
"""

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras  # pyright: ignore[reportMissingModuleSource]

from common.config import Settings
from common.ranks.launcher_variables import Ranks
from common.trainer import Batch, Batches, Observe
from frameworks.shared.replaced import replaced
from frameworks.shared.tensorflow import losses, models, optimizer

BATCHES_AT_ONCE = 16


def build(settings: Settings, ranks: Ranks) -> "Model":
    """Builds the Model of the settings."""
    keras.backend.set_floatx(models.DTYPES[settings.precision].name)
    # Its stub has the type of Keras's own models.
    return Model(models.build(settings, ranks), settings)  # pyright: ignore[reportReturnType]


def without_communication(trainer: Any) -> Callable[[], AbstractContextManager[None]]:
    """Returns a function that gives a context in which a backend's Trainer fits a model without Horovod, on the same parameters."""
    plain = Model(trainer.module, trainer.model.settings)
    plain.compile(Optimizer(trainer.optimizer, trainer.module.parameters), loss=Loss(reduction="sum"))
    return lambda: replaced((trainer, "model", plain), (trainer, "callbacks", []))


class Model(keras.Model):
    """A model of frameworks/shared/tensorflow/models.py as a Keras model, which calls it without masks."""

    def __init__(self, module: models.Model, settings: Settings) -> None:
        super().__init__()
        self.module, self.settings = module, settings

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.module.forward(self.module.parameters, inputs, self.settings.dropout and training)

    def make_train_function(self, force: bool = False) -> Callable:
        """Keras's own, without AutoGraph, which takes as long as the tracing and leaves files."""
        with replaced((tf.compat.v2, "function", functools.partial(tf.function, autograph=False))):
            return super().make_train_function(force)

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Keras's own step, but of several micro-batches. It returns the loss of this step instead of the epoch's running mean."""
        with tf.GradientTape() as tape:
            loss = losses.summed(self.loss_of, data, self.trainable_variables, self.settings.accumulate)
        keras_optimizer: Any = self.optimizer
        keras_optimizer.minimize(loss, self.trainable_variables, tape)
        return {"loss": loss}

    def loss_of(self, inputs: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> Any:
        return self.compute_loss(inputs, targets, self(inputs, training=True), weights)


class Loss(keras.losses.Loss):
    """The losses as frameworks/shared/tensorflow/losses.py has them; Keras computes their weighted sum."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        # fit adds a last axis to labels of shape (samples,).
        labels = tf.squeeze(y_true, -1) if y_true.shape.rank == y_pred.shape.rank else y_true
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, y_pred)


class Optimizer(keras.optimizers.Optimizer):
    """An Optimizer of frameworks/shared/tensorflow/optimizer.py, `rule`, as a Keras optimizer.

    Keras's own SGD and Adam differ; see common/model/conventions.py.
    """

    def __init__(self, rule: optimizer.Optimizer, parameters: optimizer.Parameters) -> None:
        super().__init__(name="Optimizer", jit_compile=False)
        self._learning_rate = self._build_learning_rate(0.0)
        self.rule, self.parameters = rule, parameters
        # Horovod broadcasts these.
        self._variables.extend(rule.state.values())
        self.name_of = {parameter.ref(): name for name, parameter in parameters.items()}

    def update_step(self, gradient: optimizer.Gradient, variable: tf.Variable) -> None:
        self.rule.update(self.name_of[variable.ref()], variable, gradient, tf.cast(self.learning_rate, gradient.dtype))

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments with which Horovod creates its subclass of this optimizer."""
        return {"rule": self.rule, "parameters": self.parameters}


class Pipeline:
    """The batches of each epoch as one tf.data.Dataset for fit; `learning_rates` has those of the batches read ahead.

    Batches are passed in groups, because each call from TensorFlow into Python takes milliseconds. Dataset.from_generator is not
    used because it resets the C library's allocator for the whole process.
    """

    def __init__(self) -> None:
        self.learning_rates: deque[float] = deque()
        self.dataset: tf.data.Dataset | None = None

    def begin(self, batches: Batches) -> tf.data.Dataset:
        """Starts a new epoch. Exactly len(batches) elements of the dataset must be read."""
        self.batches: Iterator[Batch] = iter(batches)
        self.ahead = self._next_group()
        if self.dataset is None:
            self.dataset = self._make_dataset(self.ahead)
        return self.dataset

    def _next_group(self) -> list[np.ndarray]:
        """Returns the inputs, targets and weights of the next batches, stacked."""
        batches = list(itertools.islice(self.batches, BATCHES_AT_ONCE))
        self.learning_rates.extend(batch.learning_rate for batch in batches)
        return [np.stack(arrays) for arrays in list(zip(*batches, strict=True))[:3]]

    def _read(self) -> list[np.ndarray]:
        arrays, self.ahead = self.ahead, self._next_group()
        return arrays

    def _make_dataset(self, example: list[np.ndarray]) -> tf.data.Dataset:
        @tf.autograph.experimental.do_not_convert
        def read(_: tf.Tensor) -> tuple[tf.Tensor, ...]:
            arrays = tf.numpy_function(self._read, [], [array.dtype for array in example])
            shapes = [(None, None, *array.shape[2:]) for array in example]
            return tuple(tf.ensure_shape(array, shape) for array, shape in zip(arrays, shapes, strict=True))

        options = tf.data.Options()
        # The autotuning thread would compete for the rank's core.
        options.autotune.enabled = False
        # Every call of fit would repeat the optimizations, without a gain.
        options.experimental_optimization.apply_default_optimizations = False
        return tf.data.Dataset.counter().map(read).unbatch().with_options(options)


class Step(keras.callbacks.Callback):
    """Sets the optimizer's learning rate before each step, and calls observe(loss) after it.

    `learning_rates` is a deque with those of the coming steps.
    """

    def __init__(self, learning_rates: deque[float], observe: Observe) -> None:
        super().__init__()
        self.learning_rates, self.observe = learning_rates, observe
        self.learning_rate: float | None = None

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        learning_rate = self.learning_rates.popleft()
        if learning_rate != self.learning_rate:
            keras_optimizer: Any = self.model.optimizer
            keras_optimizer.learning_rate.assign(learning_rate)
            self.learning_rate = learning_rate

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self.observe((logs or {})["loss"])

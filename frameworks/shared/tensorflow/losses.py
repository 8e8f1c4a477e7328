"""The losses of every TensorFlow backend: of a batch as tensors, summed over micro-batches, and in the evaluation."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from common.trainer import Batch, Totals
from frameworks.shared.tensorflow.models import Model


def weighted_loss(logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Computes the weighted sum of the cross entropies (…) of logits (…, classes) and targets (…)."""
    return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits) * weights)


def summed(loss: Callable[..., tf.Tensor], samples: Sequence[tf.Tensor], parameters: Sequence[tf.Variable], num_parts: int) -> tf.Tensor:
    """Adds up loss(*micro-batch) over the micro-batches into which samples, tensors with samples along the first axis, are cut.

    To a tape the sum is one operation. Its gradients by the parameters are computed one micro-batch after the other, so that the
    activations of only one are held.
    """
    if num_parts == 1:
        return loss(*samples)

    def add(sums: Sequence[tf.Tensor], chunk: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            value = loss(*chunk)
        gradients: Any = tape.gradient(value, parameters)
        return [total + added for total, added in zip(sums, (value, *gradients), strict=True)]

    @tf.custom_gradient
    def computed() -> tuple[tf.Tensor, Callable]:
        parts = [tf.reshape(array, (num_parts, -1, *array.shape[1:])) for array in samples]
        zeros = [tf.zeros((), parameters[0].dtype), *map(tf.zeros_like, parameters)]
        total, *gradients = tf.foldl(add, parts, zeros, parallel_iterations=1)
        by_parameter = {parameter.ref(): gradient for parameter, gradient in zip(parameters, gradients, strict=True)}
        return total, lambda scale, variables: ([], [scale * by_parameter[variable.ref()] for variable in variables])

    # tf.custom_gradient takes the function of the gradients off.
    return computed()  # pyright: ignore[reportReturnType]


def tensors(batches: Iterable[Batch], model: Model) -> Iterator[tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]]:
    """Yields the inputs, targets, weights and learning rate of each batch; the learning rate in the model's precision."""
    dtype = next(iter(model.parameters.values())).dtype
    for batch in batches:
        inputs, targets, weights = (tf.convert_to_tensor(array) for array in batch[:3])
        yield inputs, targets, weights, tf.constant(batch.learning_rate, dtype)


def evaluate(model: Model, batches: Iterable[Batch]) -> Totals:
    """Returns the Totals of the batches, for every TensorFlow backend."""
    totals = np.zeros(3)
    for inputs, targets, weights, _ in tensors(batches, model):
        totals += totals_of(model, inputs, targets, weights).numpy()
    loss, num_correct, num_losses = totals.tolist()
    return Totals(loss, num_correct, num_losses)


@tf.function(reduce_retracing=True, autograph=False)
def totals_of(model: Model, inputs: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Returns the Totals of one batch as a tensor."""
    logits = model.forward(model.parameters, inputs, False)
    correct = tf.cast(tf.argmax(logits, -1) == targets, weights.dtype) * weights
    return tf.cast(tf.stack([weighted_loss(logits, targets, weights), tf.reduce_sum(correct), tf.reduce_sum(weights)]), tf.float64)

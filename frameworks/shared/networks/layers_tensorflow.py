"""What the models in TensorFlow share: mixed precision."""

from collections.abc import Callable, Mapping

import tensorflow as tf

# Parameters by name: variables, or in mixed precision what they are cast to.
Weights = Mapping[str, tf.Variable | tf.Tensor]
# in_bfloat16 or unchanged: what a matrix product or a convolution takes. Types change where PyTorch's autocast changes them.
Low = Callable[[tf.Tensor | tf.Variable], tf.Tensor]


def in_bfloat16(tensor: tf.Tensor | tf.Variable) -> tf.Tensor:
    """Casts what a matrix product or a convolution takes, with --precision bf16."""
    return tf.cast(tensor, tf.bfloat16)


def unchanged(tensor: tf.Tensor | tf.Variable) -> tf.Tensor:
    """Returns what a matrix product or a convolution takes, in other precisions."""
    return tensor

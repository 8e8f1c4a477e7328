"""What the models in TensorFlow share: mixed precision, and layers that are computed again."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import tensorflow as tf

T = TypeVar("T")
# Parameters by name: variables, or in mixed precision what they are cast to.
Weights = Mapping[str, tf.Variable | tf.Tensor]
# in_bfloat16 or unchanged: what a matrix product or a convolution takes. Types change where PyTorch's autocast changes them.
Low = Callable[[tf.Tensor | tf.Variable], tf.Tensor]
# A layer takes its weights and its input.
Layer = Callable[[Weights, tf.Tensor], tf.Tensor]
# tf.recompute_grad or unchanged. The former gives gradients to a layer's arguments only, so the weights are among them.
Wrap = Callable[[Layer], Layer]


def in_bfloat16(tensor: tf.Tensor | tf.Variable) -> tf.Tensor:
    """Casts what a matrix product or a convolution takes, with --precision bf16."""
    return tf.cast(tensor, tf.bfloat16)


def unchanged(value: T) -> T:
    """Returns a tensor in other precisions, and a layer that keeps its activations for the backward pass."""
    return value

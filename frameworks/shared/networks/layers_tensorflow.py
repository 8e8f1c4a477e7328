"""What the models in TensorFlow are made of: mixed precision, stacks of layers, and attention."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
import tensorflow as tf

T = TypeVar("T")
# Parameters by name: variables, or in mixed precision what they are cast to.
Weights = Mapping[str, tf.Variable | tf.Tensor]
# in_bfloat16 or unchanged: what a matrix product or a convolution takes. Types change where PyTorch's autocast changes them.
Low = Callable[[tf.Tensor | tf.Variable], tf.Tensor]
# A layer takes its weights, its input and, in a decoder with an encoder, the encoder's output.
Layer = Callable[..., tf.Tensor]
# tf.recompute_grad or unchanged. The former gives gradients to a layer's arguments only, so the weights are among them.
Wrap = Callable[[Layer], Layer]


def in_bfloat16(tensor: tf.Tensor | tf.Variable) -> tf.Tensor:
    """Casts what a matrix product or a convolution takes, with --precision bf16."""
    return tf.cast(tensor, tf.bfloat16)


def unchanged(value: T) -> T:
    """Returns a tensor in other precisions, and a layer that keeps its activations for the backward pass."""
    return value


def in_layers(prefix: str, layer: Layer, wrap: Wrap, parameters: Weights, x: tf.Tensor, *memory: tf.Tensor) -> tf.Tensor:
    """Computes a stack of layers, layer(its weights by their names within it, x, *memory), one after the other."""
    layers = {}
    for name, value in parameters.items():
        if name.startswith(prefix):
            number, _, name_within = name.removeprefix(prefix).partition(".")
            layers.setdefault(number, {})[name_within] = value
    for weights in layers.values():
        x = wrap(layer)(weights, x, *memory)
    return x


def heads(x: tf.Tensor, num_heads: int) -> tf.Tensor:
    """Divides (samples, positions, width) into (samples, heads, positions, head width)."""
    _, positions, width = sizes(x)
    return tf.transpose(tf.reshape(x, (-1, positions, num_heads, width // num_heads)), (0, 2, 1, 3))


def merged(x: tf.Tensor) -> tf.Tensor:
    """Joins the heads again, the inverse of `heads`."""
    _, num_heads, positions, head_width = sizes(x)
    return tf.reshape(tf.transpose(x, (0, 2, 1, 3)), (-1, positions, num_heads * head_width))


def sizes(x: tf.Tensor) -> list[int]:
    """Returns the sizes of a tensor's axes, -1 for the number of samples where it is unknown."""
    return [-1 if size is None else size for size in x.shape.as_list()]


def attention(
    low: Low, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, causal: bool, dropped: Callable[[tf.Tensor], tf.Tensor] = unchanged
) -> tf.Tensor:
    _, _, positions, head_width = sizes(query)
    scores = tf.cast(tf.matmul(low(query), low(key), transpose_b=True), query.dtype) / tf.sqrt(tf.cast(head_width, query.dtype))
    if causal:
        past = np.tri(positions, dtype=bool)
        scores = tf.where(past, scores, scores.dtype.min)
    return low(dropped(tf.nn.softmax(scores))) @ low(value)

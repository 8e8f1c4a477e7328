"""Computes the decoder-only Transformer of common/model/decoder.py in TensorFlow."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from common.model import conventions
from common.model.decoder import Decoder, rotary_tables
from frameworks.shared.networks.layers_tensorflow import Low, Weights


def outputs(model: Decoder, low: Low, parameters: Weights, tokens: tf.Tensor, _: bool) -> tf.Tensor:
    """Computes the decoder-only Transformer of common/model/decoder.py: tokens (samples, context) -> logits (samples, context, tokens)."""

    def product(x: tf.Tensor, weight: tf.Tensor | tf.Variable) -> tf.Tensor:
        return low(x) @ low(weight)

    x = tf.gather(parameters["embedding.weight"], tokens)
    rotary = [tf.constant(table, x.dtype) for table in rotary_tables(model.context, model.head_width)]

    def block(layer: Weights, x: tf.Tensor) -> tf.Tensor:
        normed = rms_norm(x, layer["attention_norm.weight"])
        projected = (tf.cast(product(normed, layer[f"{name}.weight"]), x.dtype) for name in ("query", "key", "value"))
        shape = (-1, model.context, model.num_heads, model.head_width)
        query, key, value = (tf.transpose(tf.reshape(tensor, shape), (0, 2, 1, 3)) for tensor in projected)
        mixed = attention(model, low, rotated(query, rotary), rotated(key, rotary), value)
        joined = tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), (-1, model.context, model.width))
        x += tf.cast(product(joined, layer["attended.weight"]), x.dtype)
        normed = rms_norm(x, layer["feed_norm.weight"])
        # Computed in the type of x, and then rounded.
        gate = low(tf.nn.silu(tf.cast(product(normed, layer["gate.weight"]), x.dtype)))
        return x + tf.cast(product(gate * product(normed, layer["up.weight"]), layer["down.weight"]), x.dtype)

    for prefix in (f"blocks.{number}." for number in range(model.num_layers)):
        layer = {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}
        x = block(layer, x)
    normed = rms_norm(x, parameters["norm.weight"])
    if model.tied:
        return tf.matmul(low(normed), low(parameters["embedding.weight"]), transpose_b=True)
    return product(normed, parameters["head.weight"])


def rms_norm(x: tf.Tensor, weight: tf.Tensor | tf.Variable) -> tf.Tensor:
    return x * tf.math.rsqrt(tf.reduce_mean(x * x, -1, keepdims=True) + conventions.RMS_NORM_EPSILON) * weight


def rotated(x: tf.Tensor, rotary: Sequence[tf.Tensor]) -> tf.Tensor:
    """Applies rotary embeddings (common/model/decoder.py) to (samples, heads, context, head width)."""
    cosine, sine = rotary
    real, imaginary = tf.split(x, 2, axis=-1)
    return tf.concat((real * cosine - imaginary * sine, real * sine + imaginary * cosine), axis=-1)


def attention(model: Decoder, low: Low, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    """Computes causal attention; all are (samples, heads, context, head width)."""
    scores = tf.cast(tf.matmul(low(query), low(key), transpose_b=True), query.dtype) / tf.sqrt(tf.cast(model.head_width, query.dtype))
    past = np.tri(model.context, dtype=bool)
    return low(tf.nn.softmax(tf.where(past, scores, scores.dtype.min))) @ low(value)

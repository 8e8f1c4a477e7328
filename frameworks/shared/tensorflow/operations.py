"""The operations of common/model/operations.py in TensorFlow, each as the models compute it, and their passes."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from common.model import operations
from common.model.decoder import rotary_tables
from common.model.operations import Operand, Operation
from common.trainer import Passes
from frameworks.shared.tensorflow import states, steps
from frameworks.shared.tensorflow.models.decoder import rms_norm, rotated
from frameworks.shared.tensorflow.models.encoder_decoder import layer_norm
from frameworks.shared.tensorflow.models.layers import Low, attention, heads, in_bfloat16, merged, unchanged
from frameworks.shared.tensorflow.models.resnet import batch_norm
from frameworks.shared.tensorflow.optimizer import Optimizer, Parameters


def passes(operation: Operation, copies: Sequence[Sequence[np.ndarray]], precision: str) -> Passes:
    """Returns the Passes of copies of an operation, given their operands. Each pass is one graph."""
    low = in_bfloat16 if precision == "bf16" else unchanged
    # As variables, which are no constants of a graph.
    operands = [[_variable(*pair, low) for pair in zip(operation.operands, arrays, strict=True)] for arrays in copies]
    leaves = [variable for variables in operands for variable in variables if variable.trainable]
    compute = functools.partial(FUNCTIONS[type(operation)], operation, low)

    @tf.function
    def outputs() -> list[tf.Tensor]:
        return [compute(*map(tf.convert_to_tensor, variables)) for variables in operands]

    # TensorFlow warns of functions that are traced in a loop, unless their graphs are called.
    forward = outputs.get_concrete_function()
    gradients = [tf.Variable(tf.ones_like(output), trainable=False) for output in forward()]

    @tf.function
    def outputs_and_gradients() -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            computed = [compute(*map(tf.convert_to_tensor, variables)) for variables in operands]
        by_leaf: Any = tape.gradient(computed, leaves, list(map(tf.convert_to_tensor, gradients)))
        # All outputs, since what is not returned is not computed.
        return computed, list(map(tf.convert_to_tensor, by_leaf))

    return Passes(_waiting(forward), _waiting(outputs_and_gradients.get_concrete_function()))


def update(optimizer: Optimizer, parameters: Parameters) -> Callable[[], None]:
    """Returns the `update` of a Trainer."""
    gradients = [tf.Variable(tf.random.uniform(tf.shape(parameter), dtype=parameter.dtype)) for parameter in parameters.values()]

    @tf.function
    def step() -> None:
        optimizer.step(parameters, map(tf.convert_to_tensor, gradients), tf.zeros((), gradients[0].dtype))

    return _waiting(step.get_concrete_function())


def _waiting(graph: Callable[[], object]) -> Callable[[], None]:
    """Returns the call of a graph, with its wait for the end."""

    def run() -> None:
        graph()
        # On a CPU a graph has been computed when its call returns.
        if tf.config.get_visible_devices("GPU"):
            tf.test.experimental.sync_devices()

    return run


def _variable(operand: Operand, array: np.ndarray, low: Low) -> tf.Variable:
    tensor = states.as_tensor(operand.parameter, array) if operand.parameter else tf.convert_to_tensor(array)
    return tf.Variable(low(tensor) if operand.low else tensor, trainable=operand.has_gradient)


def _convolution(operation: operations.Convolution, low: Low, x: tf.Tensor, weight: tf.Tensor, bias: tf.Tensor | None = None) -> tf.Tensor:
    padding = _sides(operation.padding) if operation.padding else "VALID"
    # Its stub lacks paddings by axis.
    x = tf.nn.conv2d(low(x), low(weight), operation.stride, padding)  # pyright: ignore[reportArgumentType]
    return x if bias is None else tf.nn.bias_add(x, low(bias))


def _dense(_: operations.Dense, low: Low, x: tf.Tensor, weight: tf.Tensor, bias: tf.Tensor | None = None) -> tf.Tensor:
    x = low(x) @ low(weight)
    return x if bias is None else tf.nn.bias_add(x, low(bias))


def _attention(operation: operations.Attention, low: Low, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    # Mixed precision rotates in float32.
    dtype = tf.float32 if query.dtype == tf.bfloat16 else query.dtype
    query, key, value = (heads(tf.cast(tensor, dtype), operation.num_heads) for tensor in (query, key, value))
    if operation.causal:
        rotary = [tf.constant(table, dtype) for table in rotary_tables(operation.num_queries, operation.head_width)]
        query, key = rotated(query, rotary), rotated(key, rotary)
    return merged(attention(low, query, key, value, causal=operation.causal))


def _norm(operation: operations.Norm, _: Low, x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor | None = None) -> tf.Tensor:
    if offset is None:
        return rms_norm(x, scale)
    return layer_norm(x, scale, offset) if operation.name == "layer" else batch_norm(x, scale, offset, operation.epsilon)


def _embedding(_: operations.Embedding, __: Low, tokens: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
    return tf.gather(table, tokens)


def _activation(_: operations.Activation, low: Low, x: tf.Tensor, factor: tf.Tensor | None = None) -> tf.Tensor:
    if factor is None:
        return tf.nn.relu(x)
    # Computed in float32 or float64, and then rounded, as the model does.
    return low(tf.nn.silu(tf.cast(x, tf.float32) if x.dtype == tf.bfloat16 else x)) * factor


def _residual(_: operations.Residual, __: Low, x: tf.Tensor, added: tf.Tensor) -> tf.Tensor:
    return x + added


def _pooling(operation: operations.Pooling, _: Low, x: tf.Tensor) -> tf.Tensor:
    if operation.size is None:
        return tf.reduce_mean(x, (1, 2))
    x = tf.pad(x, _sides(operation.padding)) if operation.padding else x
    return tf.nn.max_pool2d(x, operation.size, operation.stride, "VALID")


def _loss(_: operations.Loss, __: Low, logits: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    return steps.weighted_loss(logits, targets, weights)


def _sides(padding: int) -> list[list[int]]:
    """Returns the padding before and after each axis of images."""
    return [[0, 0], [padding, padding], [padding, padding], [0, 0]]


FUNCTIONS: dict[type[Operation], Callable[..., tf.Tensor]] = {
    operations.Convolution: _convolution,
    operations.Dense: _dense,
    operations.Attention: _attention,
    operations.Norm: _norm,
    operations.Embedding: _embedding,
    operations.Activation: _activation,
    operations.Residual: _residual,
    operations.Pooling: _pooling,
    operations.Loss: _loss,
}

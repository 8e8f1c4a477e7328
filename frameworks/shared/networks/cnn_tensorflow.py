"""Computes the CNN of common/model/cnn.py in TensorFlow."""

import math

import tensorflow as tf

from common.model import conventions
from common.model.cnn import Cnn
from frameworks.shared.networks.layers_tensorflow import Low, Weights


def outputs(model: Cnn, low: Low, parameters: Weights, x: tf.Tensor, dropout: bool) -> tf.Tensor:
    """Computes the CNN of common/model/cnn.py: images (samples, height, width) -> (samples, classes) logits."""
    parameters = {name: low(value) for name, value in parameters.items()}

    def layer(name: str, product: tf.Tensor) -> tf.Tensor:
        return tf.nn.bias_add(product, parameters[f"{name}.bias"])

    x = low(tf.expand_dims(x, -1))
    x = tf.nn.relu(layer("conv1", tf.nn.conv2d(x, parameters["conv1.weight"], 1, "VALID")))
    x = tf.nn.relu(layer("conv2", tf.nn.conv2d(x, parameters["conv2.weight"], 1, "VALID")))
    x = tf.nn.max_pool2d(x, model.pooling, model.pooling, "VALID")
    x = tf.nn.dropout(x, conventions.CNN_DROPOUT[0]) if dropout else x
    x = tf.reshape(x, (-1, math.prod(model.pooled_shape)))
    x = tf.nn.relu(layer("dense1", x @ parameters["dense1.weight"]))
    x = tf.nn.dropout(x, conventions.CNN_DROPOUT[1]) if dropout else x
    return layer("dense2", x @ parameters["dense2.weight"])

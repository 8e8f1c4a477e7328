"""ResNet-50 in TensorFlow."""

import tensorflow as tf

from common.model import resnet
from common.model.resnet import ResNet50
from frameworks.shared.networks.layers_tensorflow import Low, Weights

# Before and after height and width; stride 2 under TensorFlow's SAME would pad one side only.
ONE_PIXEL = [[0, 0], [1, 1], [1, 1], [0, 0]]


def outputs(model: ResNet50, low: Low, parameters: Weights, pixels: tf.Tensor, _: bool) -> tf.Tensor:
    """Computes the ResNet-50 of common/model/resnet.py: pixels (samples, height, width, 3) -> logits (samples, classes)."""

    def convolved(weights: Weights, convolution: resnet.Convolution, x: tf.Tensor) -> tf.Tensor:
        weight = weights[f"{convolution.name}.weight"]
        padding = [[number * (convolution.size // 2) for number in sides] for sides in ONE_PIXEL]
        # Its stub lacks paddings by axis.
        x = tf.nn.conv2d(low(x), low(weight), convolution.stride, padding)  # pyright: ignore[reportArgumentType]
        return batch_norm(x, weights[f"{convolution.norm}.weight"], weights[f"{convolution.norm}.bias"], model.norm_epsilon)

    def computed(block: resnet.Bottleneck, weights: Weights, x: tf.Tensor) -> tf.Tensor:
        first, second, third = block.convolutions
        out = tf.nn.relu(convolved(weights, first, x))
        out = tf.nn.relu(convolved(weights, second, out))
        return tf.nn.relu(convolved(weights, third, out) + (convolved(weights, block.shortcut, x) if block.shortcut else x))

    dtype = parameters["conv1.weight"].dtype
    means, deviations = (tf.constant([255 * value for value in values], dtype) for values in (model.pixel_means, model.pixel_deviations))
    x = (tf.cast(pixels, dtype) - means) / deviations
    x = tf.nn.relu(convolved(parameters, resnet.first_convolution(model), x))
    # Nothing is less than 0. Padding by the pooling itself is several times as slow.
    x = tf.nn.max_pool2d(tf.pad(x, ONE_PIXEL), resnet.POOLING_SIZE, resnet.POOLING_STRIDE, "VALID")
    for stage in resnet.stages(model):
        for block in stage:
            weights = {name: value for name, value in parameters.items() if name.startswith(f"{block.name}.")}
            x = computed(block, weights, x)
    return tf.nn.bias_add(low(tf.reduce_mean(x, (1, 2))) @ low(parameters["fc.weight"]), low(parameters["fc.bias"]))


def batch_norm(x: tf.Tensor, scale: tf.Tensor | tf.Variable, offset: tf.Tensor | tf.Variable, epsilon: float) -> tf.Tensor:
    """Computes batch norm with the mean and the biased variance of the batch."""
    if x.dtype == tf.float64:
        # TensorFlow's fused operation has no float64.
        mean, variance = tf.nn.moments(x, (0, 1, 2))
        return tf.nn.batch_normalization(x, mean, variance, offset, scale, epsilon)
    none = tf.zeros(0, scale.dtype)
    return tf.raw_ops.FusedBatchNormV3(x=x, scale=scale, offset=offset, mean=none, variance=none, epsilon=epsilon, is_training=True).y

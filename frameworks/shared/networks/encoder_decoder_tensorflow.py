"""The encoder-decoder Transformer of common/model/encoder_decoder.py in TensorFlow."""

import tensorflow as tf

from common.model import conventions
from common.model.encoder_decoder import EncoderDecoder
from frameworks.shared.networks.layers_tensorflow import Low, Weights, Wrap, attention, heads, in_layers, merged


def outputs(model: EncoderDecoder, wrap: Wrap, low: Low, parameters: Weights, x: tf.Tensor, dropout: bool) -> tf.Tensor:
    """PyTorch's nn.Transformer: (samples, source and target positions, width) -> (samples, width, target positions)."""

    def affine(x: tf.Tensor, weight: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        return tf.nn.bias_add(low(x) @ low(weight), low(bias))

    def dense(parameters: Weights, name: str, x: tf.Tensor) -> tf.Tensor:
        return affine(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"])

    def dropped(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.dropout(x, conventions.ENCODER_DECODER_DROPOUT) if dropout else x

    def norm(parameters: Weights, name: str, x: tf.Tensor) -> tf.Tensor:
        return layer_norm(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"])

    def attended(parameters: Weights, name: str, x: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
        weights = tf.split(parameters[f"{name}.in_proj_weight"], 3, axis=1)
        biases = tf.split(parameters[f"{name}.in_proj_bias"], 3)
        affines = zip((x, memory, memory), weights, biases, strict=True)
        query, key, value = (heads(tf.cast(affine(*arguments), x.dtype), model.num_heads) for arguments in affines)
        mixed = merged(attention(low, query, key, value, causal=False, dropped=dropped))
        return tf.cast(dropped(dense(parameters, f"{name}.out_proj", mixed)), x.dtype)

    def fed(layer: Weights, x: tf.Tensor) -> tf.Tensor:
        return tf.cast(dropped(dense(layer, "linear2", dropped(tf.nn.relu(dense(layer, "linear1", x))))), x.dtype)

    def encoder_layer(layer: Weights, x: tf.Tensor) -> tf.Tensor:
        x = norm(layer, "norm1", x + attended(layer, "self_attn", x, x))
        return norm(layer, "norm2", x + fed(layer, x))

    def decoder_layer(layer: Weights, x: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
        x = norm(layer, "norm1", x + attended(layer, "self_attn", x, x))
        x = norm(layer, "norm2", x + attended(layer, "multihead_attn", x, memory))
        return norm(layer, "norm3", x + fed(layer, x))

    memory, x = x[:, : model.source_length], x[:, model.source_length :]
    memory = norm(parameters, "encoder.norm", in_layers("encoder.layers.", encoder_layer, wrap, parameters, memory))
    x = in_layers("decoder.layers.", decoder_layer, wrap, parameters, x, memory)
    return tf.transpose(norm(parameters, "decoder.norm", x), (0, 2, 1))


def layer_norm(x: tf.Tensor, scale: tf.Tensor | tf.Variable, offset: tf.Tensor | tf.Variable) -> tf.Tensor:
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, offset, scale, conventions.LAYER_NORM_EPSILON)

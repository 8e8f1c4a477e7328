"""The models, independent of the framework: sizes, and name, shape and initialization of every parameter."""

import math
from typing import NamedTuple

import numpy as np

from common.conventions import ROTARY_BASE
from common.resnet import ResNet50, resnet_parameters
from common.weights import DTYPES, constant, he_uniform, normal, xavier_uniform


class Cnn(NamedTuple):
    """The CNN of the ALCF tutorials and of Horovod's and PyTorch's MNIST examples: 1,199,882 parameters."""

    input_shape: tuple[int, ...] = (28, 28)
    target_shape: tuple[int, ...] = ()
    whole_inputs: bool = False
    whole_targets: bool = True


class Decoder(NamedTuple):
    """A decoder-only Transformer over bytes or other tokens: pre-norm RMSNorm, rotary embeddings, SwiGLU, no biases.

    Touvron et al. 2023, arXiv:2302.13971, section 2.2. `hidden`, the width of SwiGLU, is 8/3 of the model width, rounded up to a
    multiple of 32. `tied`: the embedding is the head's weight too (Press and Wolf 2017, arXiv:1608.05859).
    """

    width: int
    num_heads: int
    num_layers: int
    context: int
    num_tokens: int = 256
    tied: bool = False
    whole_inputs: bool = True
    whole_targets: bool = True

    @property
    def head_width(self):
        return self.width // self.num_heads

    @property
    def hidden(self):
        return -(-(8 * self.width // 3) // 32) * 32

    @property
    def input_shape(self):
        return (self.context,)

    @property
    def target_shape(self):
        return (self.context,)


class EncoderDecoder(NamedTuple):
    """The encoder-decoder with the default sizes of PyTorch's nn.Transformer (Vaswani et al. 2017, arXiv:1706.03762).

    A sample is the vectors of the source followed by those of the target.
    """

    width: int = 512
    num_heads: int = 8
    num_layers: int = 6
    hidden: int = 2048
    source_length: int = 1
    target_length: int = 20
    whole_inputs: bool = False
    whole_targets: bool = False

    @property
    def input_shape(self):
        return (self.source_length + self.target_length, self.width)

    @property
    def target_shape(self):
        return (self.width, self.target_length)


# Weights of layers on flattened images: (channels, height, width), by which weights.py orders their columns. The frameworks order
# them by (height, width, channels), as their images lie in memory.
FLATTENED = {"dense1.weight": (64, 12, 12)}


def flattened_channels_last(name, array):
    """A weight (outputs, columns) in the order of the frameworks, from that of weights.py."""
    return array.reshape(len(array), *FLATTENED[name]).transpose(0, 2, 3, 1).reshape(len(array), -1)


def flattened_channels_first(name, array):
    """The inverse of `flattened_channels_last`."""
    channels, height, width = FLATTENED[name]
    return array.reshape(len(array), height, width, channels).transpose(0, 3, 1, 2).reshape(len(array), -1)


# Of an embedding that is the head's weight too: Radford et al. 2019, in GPT-2's published code.
TIED_DEVIATION = 0.02


def cnn_parameters(_):
    shapes = {"conv1": (32, 1, 3, 3), "conv2": (64, 32, 3, 3), "dense1": (128, 64 * 12 * 12), "dense2": (10, 128)}
    return {
        f"{layer}.{kind}": he_uniform(shape) if kind == "weight" else constant(shape[:1])
        for layer, shape in shapes.items()
        for kind in ("weight", "bias")
    }


def decoder_parameters(model):
    """Normal initialization with variance 1 / fan-in, divided by 2 * layers for weights that write to the residual stream.

    The division is that of GPT-2: Radford et al. 2019, section 2.3.
    """
    width, hidden, deviation = model.width, model.hidden, 1 / math.sqrt(model.width)
    residual = 1 / math.sqrt(2 * model.num_layers)
    parameters = {"embedding.weight": normal((model.num_tokens, width), TIED_DEVIATION if model.tied else 1.0)}
    for layer in range(model.num_layers):
        parameters |= {
            f"blocks.{layer}.{name}.weight": initial
            for name, initial in {
                "attention_norm": constant((width,), 1.0),
                "query": normal((width, width), deviation),
                "key": normal((width, width), deviation),
                "value": normal((width, width), deviation),
                "attended": normal((width, width), deviation * residual),
                "feed_norm": constant((width,), 1.0),
                "gate": normal((hidden, width), deviation),
                "up": normal((hidden, width), deviation),
                "down": normal((width, hidden), residual / math.sqrt(hidden)),
            }.items()
        }
    head = {} if model.tied else {"head.weight": normal((model.num_tokens, width), deviation)}
    return parameters | {"norm.weight": constant((width,), 1.0)} | head


def encoder_decoder_parameters(model):
    """Names and Xavier-uniform matrices as in PyTorch's nn.Transformer; all biases are 0."""
    width, hidden = model.width, model.hidden

    def norm(name):
        return {f"{name}.weight": constant((width,), 1.0), f"{name}.bias": constant((width,))}

    def attention(name):
        return {
            f"{name}.in_proj_weight": xavier_uniform((3 * width, width)),
            f"{name}.in_proj_bias": constant((3 * width,)),
            f"{name}.out_proj.weight": xavier_uniform((width, width)),
            f"{name}.out_proj.bias": constant((width,)),
        }

    def feed(name):
        return {
            f"{name}.linear1.weight": xavier_uniform((hidden, width)),
            f"{name}.linear1.bias": constant((hidden,)),
            f"{name}.linear2.weight": xavier_uniform((width, hidden)),
            f"{name}.linear2.bias": constant((width,)),
        }

    parameters = {}
    for layer in range(model.num_layers):
        name = f"encoder.layers.{layer}"
        parameters |= attention(f"{name}.self_attn") | feed(name) | norm(f"{name}.norm1") | norm(f"{name}.norm2")
    for layer in range(model.num_layers):
        name = f"decoder.layers.{layer}"
        parameters |= attention(f"{name}.self_attn") | attention(f"{name}.multihead_attn") | feed(name)
        parameters |= norm(f"{name}.norm1") | norm(f"{name}.norm2") | norm(f"{name}.norm3")
    return parameters | norm("encoder.norm") | norm("decoder.norm")


PARAMETERS = {Cnn: cnn_parameters, Decoder: decoder_parameters, EncoderDecoder: encoder_decoder_parameters, ResNet50: resnet_parameters}

# Models of many layers or blocks, of which --recompute keeps the activations of one at a time.
LAYERED = (Decoder, EncoderDecoder, ResNet50)


def parameters_of(model):
    """{name: Initial} of all parameters of a model."""
    return PARAMETERS[type(model)](model)


def input_type(model, precision):
    """NumPy's type of the inputs in a batch.

    Integers are int64, which all frameworks accept, but pixels are bytes: a model scales them on its device, and less is moved there.
    """
    if isinstance(model, ResNet50):
        return np.uint8
    return np.int64 if model.whole_inputs else DTYPES[precision]


def rotary_tables(model):
    """(cosines, sines) of the rotary embeddings, float64, each of shape (context, head width / 2).

    Su et al. 2021, arXiv:2104.09864, eq. 34, with the first half of a head's vector as the real parts.
    """
    frequencies = ROTARY_BASE ** (-np.arange(0, model.head_width, 2) / model.head_width)
    angles = np.arange(model.context)[:, None] * frequencies
    return np.cos(angles), np.sin(angles)

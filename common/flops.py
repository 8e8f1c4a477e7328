"""Floating-point operations and tokens of a sample, by formula. Pure.

A multiplication with its addition counts as two operations. Matrix products and convolutions count, all else is left out. Attention counts
whole, although a causal mask needs half of it, as in Chowdhery et al. 2022, arXiv:2204.02311, appendix B, and in PyTorch's FlopCounterMode.
"""

import math

from common import resnet
from common.models import Cnn, Decoder, EncoderDecoder, ResNet50, parameters_of


def cnn(_):
    places = {"conv1": 26 * 26, "conv2": 24 * 24, "dense1": 1, "dense2": 1}
    return {name: 2 * number * math.prod(parameters_of(Cnn())[f"{name}.weight"].shape) for name, number in places.items()}


def decoder(model):
    """The halves of each block are apart, as in common/pipelining.py."""
    context, width = model.context, model.width
    halves = {
        "attention": _products(context, 4 * width**2) + _attention(context, context, width),
        "feed": _products(context, 3 * width * model.hidden),
    }
    blocks = {f"blocks.{layer}.{half}": number for layer in range(model.num_layers) for half, number in halves.items()}
    return {"embedding": 0, **blocks, "head": _products(context, width * model.num_tokens)}


def encoder_decoder(model):
    source, target, width = model.source_length, model.target_length, model.width
    feed = 2 * width * model.hidden
    encoder = _products(source, 4 * width**2 + feed) + _attention(source, source, width)
    # Of the attention to the source, keys and values are projections of the source.
    to_source = _products(target + source, 2 * width**2) + _attention(target, source, width)
    decoder = _products(target, 4 * width**2 + feed) + _attention(target, target, width) + to_source
    layers = {"encoder": encoder, "decoder": decoder}
    return {f"{name}.layers.{layer}": number for name, number in layers.items() for layer in range(model.num_layers)}


def _products(num_positions, num_weights):
    """Of products of matrices of so many weights with the vectors of all positions."""
    return 2 * num_positions * num_weights


def _attention(num_queries, num_keys, width):
    """Of the scores and of the sum of the values, over all heads."""
    return 2 * 2 * num_queries * num_keys * width


def resnet50(model):
    return {"whole": resnet.forward_flops(model)}


FORWARD = {Cnn: cnn, Decoder: decoder, EncoderDecoder: encoder_decoder, ResNet50: resnet50}
# Of models of sequences: the tokens of a sample that are predicted.
TOKENS = {Decoder: lambda model: model.context, EncoderDecoder: lambda model: model.target_length}


def forward_by_part(model):
    """{part of a model: operations of its forward pass for one sample}."""
    return FORWARD[type(model)](model)


def training(model):
    """Operations to train on one sample: three times the forward pass (Chowdhery et al. 2022, appendix B).

    The backward pass has two products for each of the forward pass. Activations that are computed again (--recompute) do not count.
    """
    return 3 * sum(forward_by_part(model).values())


def num_tokens(model):
    """Tokens of a sample; None for a model of images."""
    return TOKENS[type(model)](model) if type(model) in TOKENS else None

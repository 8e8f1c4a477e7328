"""The decoder-only Transformer of common/model/decoder.py in PyTorch."""

import functools
from collections.abc import Callable, Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention, silu

from common.model import conventions
from common.model.decoder import Decoder, rotary_tables
from frameworks.shared.networks.layers_pytorch import cross_entropy, is_right, zeroed

# Cosines and sines.
Rotary = tuple[Tensor, Tensor]

loss, metric = cross_entropy, is_right


def model(description: Decoder) -> nn.Module:
    return zeroed(DecoderModule(description))


class Block(nn.Module):
    """A decoder layer: attention and SwiGLU with residual connections; (samples, context, width) in and out."""

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        width, hidden = model.width, model.hidden
        self.head_width = model.head_width
        self.attention_norm = nn.RMSNorm(width, eps=conventions.RMS_NORM_EPSILON)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.attended = nn.Linear(width, width, bias=False)
        self.feed_norm = nn.RMSNorm(width, eps=conventions.RMS_NORM_EPSILON)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, rotary: Rotary) -> Tensor:
        return self.feed(self.attend(x, rotary))

    def attend(self, x: Tensor, rotary: Rotary) -> Tensor:
        normed = self.attention_norm(x)
        # Under tensor parallelism each rank has some of the heads.
        heads = (projection(normed).unflatten(-1, (-1, self.head_width)) for projection in (self.query, self.key, self.value))
        query, key, value = (tensor.transpose(1, 2) for tensor in heads)
        # Rotated in float32 where the library itself computes in 16 bits.
        query, key = (rotated(tensor, rotary).to(value.dtype) for tensor in (query, key))
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        return x + self.attended(mixed.transpose(1, 2).flatten(2))

    def feed(self, x: Tensor) -> Tensor:
        normed = self.feed_norm(x)
        return x + self.down(silu(self.gate(normed)) * self.up(normed))


def rotated(x: Tensor, rotary: Rotary) -> Tensor:
    """Applies rotary embeddings (common/model/decoder.py) to (samples, heads, context, head width)."""
    cosine, sine = rotary
    real, imaginary = x.chunk(2, dim=-1)
    return torch.cat((real * cosine - imaginary * sine, real * sine + imaginary * cosine), dim=-1)


class DecoderModule(nn.Module):
    """The decoder-only Transformer of common/model/decoder.py: tokens (samples, context) -> logits (samples, context, tokens)."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        self.description = model
        self.embedding = nn.Embedding(model.num_tokens, model.width)
        self.blocks = nn.ModuleList([Block(model) for _ in range(model.num_layers)])
        self.norm = nn.RMSNorm(model.width, eps=conventions.RMS_NORM_EPSILON)
        self.head = None if model.tied else nn.Linear(model.width, model.num_tokens, bias=False)
        cosine, sine = (torch.from_numpy(table) for table in rotary_tables(model.context, model.head_width))
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, (self.cosine, self.sine))
        return self.logits(x)

    def logits(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        return self.head(normed) if self.head else linear(normed, self.embedding.weight)

    def parts(self) -> tuple[Callable[[Tensor], Tensor], ...]:
        """Returns the functions that compute the parts of the model."""
        rotary = self.cosine, self.sine
        # nn.ModuleList does not state the type of its modules.
        blocks = cast("Iterable[Block]", self.blocks)
        halves = (half for block in blocks for half in (functools.partial(block.attend, rotary=rotary), block.feed))
        return self.embedding, *halves, self.logits

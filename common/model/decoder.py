"""The decoder-only Transformer."""

import math
from typing import NamedTuple

import numpy as np

from common.model.conventions import ROTARY_BASE
from common.model.operations import Activation, Attention, Dense, Embedding, Residual
from common.model.parts import FLOAT32, Layer, Part, Sizes, product, rms_norm
from common.model.weights import normal

# The standard deviation of an embedding that is the head's weight too: Radford et al. 2019, in GPT-2's published code.
TIED_DEVIATION = 0.02


class Decoder(NamedTuple):
    """A decoder-only Transformer over bytes or other tokens: pre-norm RMSNorm, rotary embeddings, SwiGLU, no biases.

    Touvron et al. 2023, arXiv:2302.13971, section 2.2. `hidden`, the width of SwiGLU, is 8/3 of the model width, rounded up to a
    multiple of 32. `tied`: the embedding is the head's weight too (Press and Wolf 2017, arXiv:1608.05859). Initialization is normal with
    variance 1 / fan-in.
    """

    width: int
    num_heads: int
    num_layers: int
    context: int
    num_tokens: int = 256
    tied: bool = False
    whole_inputs: bool = True
    whole_targets: bool = True

    pixels = False

    @property
    def head_width(self) -> int:
        return self.width // self.num_heads

    @property
    def hidden(self) -> int:
        return -(-(8 * self.width // 3) // 32) * 32

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.context,)

    @property
    def target_shape(self) -> tuple[int, ...]:
        return (self.context,)

    @property
    def logits_shape(self) -> tuple[int, ...]:
        return (self.context, self.num_tokens)

    @property
    def tokens_per_sample(self) -> int:
        return self.context

    def parts(self, sizes: Sizes = FLOAT32, num_divisions: int = 1) -> list[Part]:
        """Returns the embedding, the halves of each block, and the head. Halves give a model of few blocks enough stages for a pipeline.

        Tensor parallelism divides heads, SwiGLU and, between the products, the context, so that each rank gathers the whole inputs of
        products (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2).
        """
        element, factor, statistic, fused = sizes
        gathered, logits = self.context * self.width, self.context * self.num_tokens
        stream, hidden = gathered / num_divisions, self.context * self.hidden / num_divisions
        scores = statistic * self.num_heads * self.context / num_divisions

        def normed(num_products: int) -> float:
            # CPUs also keep the input over its root mean square. Mixed precision casts the result for each product.
            statistics = statistic * self.context / num_divisions
            return element * stream * (1 if fused else 2) + statistics + (num_products * factor if sizes.mixed else element) * gathered

        # An attention keeps rotated queries and keys, values, and its result, which CPUs keep twice.
        attention = normed(3) + factor * stream * (4 if fused else 5) + scores
        feed = normed(2) + 4 * factor * hidden
        shape = (self.context, self.width)
        parts = [Part("embedding", self._embedding(), shape, 0, element * stream)]
        for block in (f"blocks.{layer}" for layer in range(self.num_layers)):
            parts += [
                Part(f"{block}.attention", self._attention(block), shape, attention, 4 * element * stream, element * stream, block),
                Part(f"{block}.feed", self._feed(block), shape, feed, element * stream + 2 * factor * hidden, element * stream, block),
            ]
        head, working = normed(1) + statistic * logits, (statistic + (factor if sizes.mixed else 0)) * logits
        return [*parts, Part("head", self._head(), (self.context, self.num_tokens), head, working)]

    def _embedding(self) -> tuple[Layer, ...]:
        table = normal((self.num_tokens, self.width), TIED_DEVIATION if self.tied else 1.0)
        lookup = Embedding(num_positions=self.context, num_tokens=self.num_tokens, width=self.width)
        return (Layer("embedding", {"weight": table}, flops=0, divided="embedding", operations=(lookup,)),)

    def _attention(self, block: str) -> tuple[Layer, ...]:
        square, deviation, stream = (self.width, self.width), 1 / math.sqrt(self.width), (self.context, self.width)
        attention = Attention(num_queries=self.context, num_keys=self.context, width=self.width, num_heads=self.num_heads, causal=True)
        attended = self._product(f"{block}.attended", square, deviation * self._residual, "rows", "projection")
        return (
            rms_norm(f"{block}.attention_norm", stream),
            *(self._product(f"{block}.{name}", square, deviation, "columns", "projection") for name in ("query", "key", "value")),
            Layer(f"{block}.scores", flops=attention.flops, operations=(attention,)),
            attended.followed_by(Residual(input_shape=stream)),
        )

    def _feed(self, block: str) -> tuple[Layer, ...]:
        width, hidden, stream = self.width, self.hidden, (self.context, self.width)
        gate, up = (self._product(f"{block}.{name}", (hidden, width), 1 / math.sqrt(width), "columns") for name in ("gate", "up"))
        down = self._product(f"{block}.down", (width, hidden), self._residual / math.sqrt(hidden), "rows")
        swiglu = Activation(name="swiglu", input_shape=(self.context, hidden))
        return rms_norm(f"{block}.feed_norm", stream), gate, up.followed_by(swiglu), down.followed_by(Residual(input_shape=stream))

    def _head(self) -> tuple[Layer, ...]:
        head = self._product("head", (self.num_tokens, self.width), 1 / math.sqrt(self.width), "head")
        return rms_norm("norm", (self.context, self.width)), head._replace(parameters={}) if self.tied else head

    def _product(self, name: str, shape: tuple[int, int], deviation: float, divided: str, kind: str = "dense") -> Layer:
        num_outputs, num_inputs = shape
        operation = Dense(kind=kind, input_shape=(self.context, num_inputs), num_outputs=num_outputs)
        return product(name, normal(shape, deviation), operation, divided)

    @property
    def _residual(self) -> float:
        """The factor of the deviation of weights that write to the residual stream, as in GPT-2: Radford et al. 2019, section 2.3."""
        return 1 / math.sqrt(2 * self.num_layers)


def rotary_tables(context: int, head_width: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the cosines and the sines of the rotary embeddings in float64, each of shape (context, head width / 2).

    Su et al. 2021, arXiv:2104.09864, eq. 34, with the first half of a head's vector as the real parts.
    """
    frequencies = ROTARY_BASE ** (-np.arange(0, head_width, 2) / head_width)
    angles = np.arange(context)[:, None] * frequencies
    return np.cos(angles), np.sin(angles)

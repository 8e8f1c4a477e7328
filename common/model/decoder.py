"""The decoder-only Transformer."""

import math
from dataclasses import dataclass

import numpy as np

from common.model.conventions import ROTARY_BASE
from common.model.description import BuiltIn, Layer, Part, Workload, attention_flops, norm, product
from common.model.weights import normal

# The standard deviation of an embedding that is the head's weight too: Radford et al. 2019, in GPT-2's published code.
TIED_DEVIATION = 0.02


@dataclass(frozen=True)
class Decoder(BuiltIn):
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
    def tokens_per_sample(self) -> int:
        return self.context

    def parts(self) -> list[Part]:
        """Returns the embedding, the halves of each block, and the head. Halves give a model of few blocks enough stages for a pipeline.

        Tensor parallelism divides heads, SwiGLU and, between the products, the context, so that each rank gathers the whole inputs of
        products (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2).
        """
        shape = (self.context, self.width)
        table = normal((self.num_tokens, self.width), TIED_DEVIATION if self.tied else 1.0)
        parts = [Part("embedding", (Layer("embedding", {"weight": table}, divided="embedding"),), shape)]
        for block in (f"blocks.{layer}" for layer in range(self.num_layers)):
            parts += [
                Part(f"{block}.attention", self._attention(block), shape),
                Part(f"{block}.feed", self._feed(block), shape),
            ]
        head = self._product("head", (self.num_tokens, self.width), 1 / math.sqrt(self.width), "head")
        head = head._replace(parameters={}) if self.tied else head
        return [*parts, Part("head", (self._norm("norm"), head), (self.context, self.num_tokens))]

    def _attention(self, block: str) -> tuple[Layer, ...]:
        square, deviation = (self.width, self.width), 1 / math.sqrt(self.width)
        return (
            self._norm(f"{block}.attention_norm"),
            *(self._product(f"{block}.{name}", square, deviation, "columns") for name in ("query", "key", "value")),
            Layer(f"{block}.scores", flops=attention_flops(self.context, self.width)),
            self._product(f"{block}.attended", square, deviation * self._residual, "rows"),
        )

    def _feed(self, block: str) -> tuple[Layer, ...]:
        width, hidden = self.width, self.hidden
        gate, up = (self._product(f"{block}.{name}", (hidden, width), 1 / math.sqrt(width), "columns") for name in ("gate", "up"))
        down = self._product(f"{block}.down", (width, hidden), self._residual / math.sqrt(hidden), "rows")
        return self._norm(f"{block}.feed_norm"), gate, up, down

    def _product(self, name: str, shape: tuple[int, int], deviation: float, divided: str) -> Layer:
        return product(name, normal(shape, deviation), self.context, divided=divided)

    def _norm(self, name: str) -> Layer:
        return norm(name, self.width, has_bias=False)

    @property
    def _residual(self) -> float:
        """The factor of the deviation of weights that write to the residual stream, as in GPT-2: Radford et al. 2019, section 2.3."""
        return 1 / math.sqrt(2 * self.num_layers)


WORKLOADS = {
    "transformer": Workload(Decoder(64, 4, 2, 64), ("pydoc-types", "pydoc"), 8, 64, 20, 0.46, "adam", {"sgd": 0.05, "adam": 0.0015}),
    "transformer-lab": Workload(Decoder(288, 6, 6, 256), ("pydoc",), 8, 16, 12, 0.60, "adam", {"sgd": 0.05, "adam": 0.001}),
    "transformer-base": Workload(Decoder(512, 8, 6, 256), ("pydoc",), 8, 16, 12, 0.60, "adam", {"sgd": 0.05, "adam": 0.0005}),
    # Sizes of GPT-2 and, but for the number of heads, of GPT-3 XL; learning rates of Brown et al. 2020, arXiv:2005.14165, table 2.1. The
    # larger one is not tied, so that tensor_parallel and pipeline train it too: with bytes it would have 0.04 % fewer parameters.
    "transformer-gpt2": Workload(Decoder(768, 12, 12, 1024, tied=True), ("pydoc",), 8, 8, 1, None, "adam", {"sgd": 0.05, "adam": 0.0006}),
    "transformer-1b": Workload(Decoder(2048, 16, 24, 2048), ("pydoc",), 8, 8, 1, None, "adam", {"sgd": 0.05, "adam": 0.0002}),
}


def rotary_tables(context: int, head_width: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the cosines and the sines of the rotary embeddings in float64, each of shape (context, head width / 2).

    Su et al. 2021, arXiv:2104.09864, eq. 34, with the first half of a head's vector as the real parts.
    """
    frequencies = ROTARY_BASE ** (-np.arange(0, head_width, 2) / head_width)
    angles = np.arange(context)[:, None] * frequencies
    return np.cos(angles), np.sin(angles)

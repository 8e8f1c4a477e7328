"""The encoder-decoder Transformer."""

from typing import NamedTuple

from common.model.operations import Activation, Attention, Dense, Residual
from common.model.parts import FLOAT32, Layer, Part, Sizes, layer_norm, product
from common.model.weights import constant, xavier_uniform


class EncoderDecoder(NamedTuple):
    """The encoder-decoder with the default sizes of PyTorch's nn.Transformer (Vaswani et al. 2017, arXiv:1706.03762).

    A sample is the vectors of the source followed by those of the target. Names and Xavier-uniform matrices are those of nn.Transformer.
    All biases start at 0.
    """

    width: int = 512
    num_heads: int = 8
    num_layers: int = 6
    hidden: int = 2048
    source_length: int = 1
    target_length: int = 20
    whole_inputs: bool = False
    whole_targets: bool = False

    pixels = False

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.source_length + self.target_length, self.width)

    @property
    def target_shape(self) -> tuple[int, ...]:
        return (self.width, self.target_length)

    @property
    def logits_shape(self) -> tuple[int, ...]:
        return (self.width, self.target_length)

    @property
    def tokens_per_sample(self) -> int:
        return self.target_length

    def parts(self, sizes: Sizes = FLOAT32, _: int = 1) -> list[Part]:
        """Returns the layers of the encoder and its norm, and those of the decoder and its norm.

        Self-attention keeps a copy of its input, queries, keys, values, and their result. Each norm keeps its input and two numbers for
        each position.
        """
        element, factor, statistic, _ = sizes
        source, target = self.source_length * self.width, self.target_length * self.width

        def attention(num_positions: int) -> int:
            # The input is transposed, which copies it unless there is one position.
            vectors = num_positions * self.width
            inputs = factor * vectors if num_positions > 1 or sizes.mixed else 0
            return inputs + 4 * factor * vectors + statistic * self.num_heads * num_positions + normed(num_positions)

        def feed(num_positions: int) -> int:
            return factor * num_positions * (self.width + self.hidden) + normed(num_positions)

        def normed(num_positions: int) -> int:
            return element * num_positions * self.width + 2 * statistic * num_positions

        encoder = attention(self.source_length) + feed(self.source_length)
        to_source = factor * (3 * source + 3 * target) + statistic * self.num_heads * self.target_length + normed(self.target_length)
        decoder = attention(self.target_length) + to_source + feed(self.target_length)
        # The loss is of the last norm's output.
        loss = statistic * target
        parts = []
        # The input of the encoder's first layer is the batch, and that of the decoder's first layer is the encoder's result.
        for side, num_positions, kept, first_inputs, of_loss in (
            ("encoder", self.source_length, encoder, 0, 0), ("decoder", self.target_length, decoder, source, loss),
        ):  # fmt: skip
            working = (2 * element * self.width + 2 * factor * self.hidden) * num_positions
            for layer in range(self.num_layers):
                name, inputs = f"{side}.layers.{layer}", num_positions * self.width if layer else first_inputs
                layers = self._layer(name, num_positions, side == "decoder")
                parts.append(Part(name, layers, None, kept, working, element * inputs, block=name))
            final_norm = layer_norm(f"{side}.norm", (num_positions, self.width))
            parts.append(Part(final_norm.name, (final_norm,), None, normed(num_positions) + of_loss, 2 * of_loss))
        return parts

    def _layer(self, name: str, num_positions: int, attends_to_source: bool) -> tuple[Layer, ...]:
        width, hidden, stream = self.width, self.hidden, (num_positions, self.width)
        to_hidden = Dense(input_shape=stream, num_outputs=hidden, has_bias=True)
        from_hidden = Dense(input_shape=(num_positions, hidden), num_outputs=width, has_bias=True)
        relu = Activation(name="relu", input_shape=(num_positions, hidden))
        to_source = [self._attention(f"{name}.multihead_attn", num_positions, self.source_length)] if attends_to_source else []
        return (
            self._attention(f"{name}.self_attn", num_positions, num_positions),
            *to_source,
            product(f"{name}.linear1", xavier_uniform((hidden, width)), to_hidden).followed_by(relu),
            product(f"{name}.linear2", xavier_uniform((width, hidden)), from_hidden).followed_by(Residual(input_shape=stream)),
            *(layer_norm(f"{name}.norm{number}", stream) for number in range(1, 3 + attends_to_source)),
        )

    def _attention(self, name: str, num_queries: int, num_keys: int) -> Layer:
        """Returns an attention from `num_queries` positions, with queries and results, to `num_keys` positions, with keys and values."""
        width = self.width
        parameters = {
            "in_proj_weight": xavier_uniform((3 * width, width)),
            "in_proj_bias": constant((3 * width,)),
            "out_proj.weight": xavier_uniform((width, width)),
            "out_proj.bias": constant((width,)),
        }
        # Self-attention has one product for queries, keys and values.
        projected = [(num_queries, 3)] if name.endswith("self_attn") else [(num_queries, 1), (num_keys, 2)]
        projections = [
            Dense(kind="projection", input_shape=(num_positions, width), num_outputs=number * width, has_bias=True)
            for num_positions, number in projected
        ]
        attention = Attention(num_queries=num_queries, num_keys=num_keys, width=width, num_heads=self.num_heads, causal=False)
        result = Dense(kind="projection", input_shape=(num_queries, width), num_outputs=width, has_bias=True)
        operations = (*projections, attention, result, Residual(input_shape=(num_queries, width)))
        return Layer(name, parameters, sum(operation.flops for operation in operations), 4 * width**2, operations=operations)

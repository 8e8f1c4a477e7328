"""The encoder-decoder Transformer."""

from dataclasses import dataclass

from common.model.description import BuiltIn, Layer, Part, Workload, attention_flops, norm, product
from common.model.weights import constant, xavier_uniform


@dataclass(frozen=True)
class EncoderDecoder(BuiltIn):
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

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.source_length + self.target_length, self.width)

    @property
    def target_shape(self) -> tuple[int, ...]:
        return (self.width, self.target_length)

    @property
    def tokens_per_sample(self) -> int:
        return self.target_length

    def parts(self) -> list[Part]:
        """Returns the layers of the encoder and its norm, and those of the decoder and its norm."""
        parts = []
        for side, num_positions in (("encoder", self.source_length), ("decoder", self.target_length)):
            for name in (f"{side}.layers.{layer}" for layer in range(self.num_layers)):
                parts.append(Part(name, self._layers(name, num_positions, side == "decoder"), block=name))
            parts.append(Part(f"{side}.norm", (norm(f"{side}.norm", self.width),)))
        return parts

    def _layers(self, name: str, num_positions: int, attends_to_source: bool) -> tuple[Layer, ...]:
        to_source = [self._attention(f"{name}.multihead_attn", num_positions, self.source_length)] if attends_to_source else []
        return (
            self._attention(f"{name}.self_attn", num_positions, num_positions),
            *to_source,
            product(f"{name}.linear1", xavier_uniform((self.hidden, self.width)), num_positions, has_bias=True),
            product(f"{name}.linear2", xavier_uniform((self.width, self.hidden)), num_positions, has_bias=True),
            *(norm(f"{name}.norm{number}", self.width) for number in range(1, 3 + attends_to_source)),
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
        projections = 2 * 2 * (num_queries + num_keys) * width**2
        return Layer(name, parameters, projections + attention_flops(num_queries, num_keys, width))


WORKLOADS = {"transformer-alcf": Workload(EncoderDecoder(), ("random",), 32, 32, 1, None, "sgd", {"sgd": 0.01, "adam": 0.0001})}

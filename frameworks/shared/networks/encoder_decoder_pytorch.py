"""The encoder-decoder Transformer of common/model/encoder_decoder.py: PyTorch's own nn.Transformer."""

from torch import Tensor, nn

from common.model import conventions
from common.model.encoder_decoder import EncoderDecoder
from frameworks.shared.networks.layers_pytorch import cross_entropy, is_right, zeroed

loss, metric = cross_entropy, is_right


def model(description: EncoderDecoder) -> nn.Module:
    return zeroed(EncoderDecoderModule(description))


def layers(model: "EncoderDecoderModule") -> list[nn.Module]:
    return [*model.encoder.layers, *model.decoder.layers]


class EncoderDecoderModule(nn.Module):
    """PyTorch's own nn.Transformer: (samples, source and target positions, width) -> (samples, width, target positions)."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        transformer = nn.Transformer(
            model.width, model.num_heads, model.num_layers, model.num_layers, model.hidden, batch_first=True,
            dropout=conventions.ENCODER_DECODER_DROPOUT, layer_norm_eps=conventions.LAYER_NORM_EPSILON,
        )  # fmt: skip
        self.encoder, self.decoder, self.source_length = transformer.encoder, transformer.decoder, model.source_length

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(x[:, self.source_length :], self.encoder(x[:, : self.source_length])).transpose(1, 2)

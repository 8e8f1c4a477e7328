"""The encoder-decoder Transformer of common/model/encoder_decoder.py: PyTorch's own nn.Transformer."""

from torch import Tensor, nn

from common.model import conventions, encoder_decoder
from frameworks.shared.pytorch.models.layers import autocast


class EncoderDecoderModule(nn.Module):
    """PyTorch's own nn.Transformer: (samples, source and target positions, width) -> (samples, width, target positions)."""

    mixed = False

    def __init__(self, model: encoder_decoder.EncoderDecoder, dropout: bool) -> None:
        super().__init__()
        transformer = nn.Transformer(
            model.width, model.num_heads, model.num_layers, model.num_layers, model.hidden, batch_first=True,
            dropout=conventions.ENCODER_DECODER_DROPOUT if dropout else 0.0, layer_norm_eps=conventions.LAYER_NORM_EPSILON,
        )  # fmt: skip
        self.encoder, self.decoder, self.source_length = transformer.encoder, transformer.decoder, model.source_length

    @autocast
    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(x[:, self.source_length :], self.encoder(x[:, : self.source_length])).transpose(1, 2)

    def layers(self) -> tuple[nn.Module, ...]:
        """Returns the layers that keep no activations with --recompute, and that FSDP shards by themselves."""
        return *self.encoder.layers, *self.decoder.layers

"""Small models in the place of large ones, for the same code. No two sizes of a model are alike."""

from typing import NamedTuple

from common.model.families import Cnn, Decoder, EncoderDecoder, ResNet50
from common.model.parts import Layer, Part
from common.model.weights import constant

RESNET = ResNet50(blocks=(2, 1, 1, 1), width=4, image_size=48, num_classes=10)
MODELS = {
    "decoder": Decoder(24, 3, 2, 10, num_tokens=70),
    "tied decoder": Decoder(48, 3, 3, 10, num_tokens=70, tied=True),
    "encoder-decoder": EncoderDecoder(24, 4, 2, 56, source_length=5, target_length=7),
    "encoder-decoder of one source position": EncoderDecoder(24, 4, 2, 56, source_length=1, target_length=7),
    "cnn": Cnn(),
    "resnet": RESNET,
}


class Bare(NamedTuple):
    """A family whose parts state nothing but parameters, and which no framework implements."""

    input_shape: tuple[int, ...] = (4,)
    target_shape: tuple[int, ...] = ()
    whole_inputs: bool = False
    whole_targets: bool = True

    pixels = False
    tokens_per_sample = None

    def parts(self, *_):
        return [Part("dense", (Layer("dense", {"weight": constant((2, 4))}),))]

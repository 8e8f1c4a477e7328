"""The table of workloads, and the sizes of a Transformer that settings change."""

import dataclasses
from collections.abc import Mapping

from common.command_line import flag
from common.errors import UserError
from common.model import cnn, decoder, encoder_decoder, resnet
from common.model.decoder import Decoder
from common.model.description import Model
from common.model.encoder_decoder import EncoderDecoder

# The data set of a user's file.
OF_FILE = "file"
WORKLOADS = {**cnn.WORKLOADS, **decoder.WORKLOADS, **encoder_decoder.WORKLOADS, **resnet.WORKLOADS}
# The workloads of a matrix that names none.
BY_DEFAULT = ("cnn", "transformer")

Transformer = Decoder | EncoderDecoder
# The field of a Transformer that each setting changes, if the Transformer has it.
SIZES = {
    "layers": "num_layers", "width": "width", "heads": "num_heads", "context": "context",
    "source_length": "source_length", "target_length": "target_length",
}  # fmt: skip


def resized(model: Model, sizes: Mapping[str, int], workload: str) -> Model:
    """Returns the model of a workload with these SIZES. The width inside of an encoder's and decoder's layers keeps its ratio.

    Raises UserError for a size that the model has not, and where its heads do not divide its width.
    """
    for name in sizes:
        if not (isinstance(model, Transformer) and hasattr(model, SIZES[name])):
            raise UserError(f"{flag(name)} is not for {workload}, whose model has no such size; leave it out, or choose another workload")
    if not (sizes and isinstance(model, Transformer)):
        return model
    changed = dataclasses.replace(model, **{SIZES[name]: size for name, size in sizes.items()})
    if isinstance(model, EncoderDecoder):
        changed = dataclasses.replace(changed, hidden=model.hidden * changed.width // model.width)
    has_rotary = isinstance(changed, Decoder)
    if changed.width % changed.num_heads or (has_rotary and changed.width // changed.num_heads % 2):
        even = "an even width" if has_rotary else "a whole width"
        raise UserError(f"--width {changed.width} is not {even} for each of {changed.num_heads} heads; choose other --heads")
    return changed

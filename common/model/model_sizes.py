"""The sizes of a model that settings change."""

from collections.abc import Mapping

from common.command_line import flag
from common.errors import UserError
from common.model.decoder import Decoder
from common.model.encoder_decoder import EncoderDecoder

Transformer = Decoder | EncoderDecoder
# The field of a Transformer that each setting changes, if the Transformer has it.
FIELDS = {
    "layers": "num_layers", "width": "width", "heads": "num_heads", "context": "context",
    "source_length": "source_length", "target_length": "target_length",
}  # fmt: skip


def resized(model: Transformer, sizes: Mapping[str, int], workload: str) -> Transformer:
    """Returns the model of a workload with the sizes of FIELDS. The width inside of an encoder's and decoder's layers keeps its ratio.

    Raises UserError for a size that the model has not, and where its heads do not divide its width.
    """
    for name in sizes:
        if FIELDS[name] not in model._fields:
            raise UserError(not_for(name, workload))
    changed = model._replace(**{FIELDS[name]: size for name, size in sizes.items()})
    if isinstance(changed, EncoderDecoder):
        changed = changed._replace(hidden=model.hidden * changed.width // model.width)
    check_heads(changed)
    return changed


def not_for(name: str, workload: str) -> str:
    """Returns the message that a workload's model has no such size."""
    return f"{flag(name)} is not for {workload}, whose model has no such size; leave it out, or choose another workload"


def check_heads(model: Transformer) -> None:
    """Raises UserError where heads do not divide the width, or where rotary embeddings would get an odd number."""
    has_rotary = isinstance(model, Decoder)
    if model.width % model.num_heads or (has_rotary and model.width // model.num_heads % 2):
        even = "an even width" if has_rotary else "a whole width"
        raise UserError(f"--width {model.width} is not {even} for each of {model.num_heads} heads; choose other --heads")

"""Text as sequences of bytes: Python's documentation, a chapter of it or all of it."""

import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from common.data.samples import Arrays, Dataset
from common.errors import UserError

# The chapter on the standard types of the documentation of Python 3.11.7 (PSF License), of 38 KB, and the SHA-256 of the file. The topic
# `types` of an installed Python differs from release to release, so that machines with different releases would not train the same.
TYPES = Path(__file__).with_name("python_types.txt.gz")
TYPES_DIGEST = "f110222e213f4adf3a4a3d4836d176ce717d8301b286a639a36fb853e38d42a0"
# One sequence in this many is held out.
HELD_OUT_EVERY = 10


def reader(name: str, context: int) -> Callable[[], Dataset]:
    """Returns a function that makes sequences of `context` bytes of a text, which is read now. Raises UserError where they are too few."""
    text = np.frombuffer(_types() if name == "pydoc-types" else _installed_topics(), np.uint8)
    num_sequences = (len(text) - 1) // context
    if num_sequences < HELD_OUT_EVERY:
        raise UserError(
            f"the {len(text)} bytes of {name} are less than {HELD_OUT_EVERY} sequences of {context}, of which one is held out; "
            "choose a shorter --context, or --dataset pydoc"
        )
    return lambda: _sequences(text, num_sequences, context)


def _types() -> bytes:
    """Reads the text of TYPES. Raises UserError where the file has changed."""
    packed = TYPES.read_bytes()
    if hashlib.sha256(packed).hexdigest() != TYPES_DIGEST:
        raise UserError(f"{TYPES} is not the text that every machine trains on; restore it (git checkout)")
    return gzip.decompress(packed)


def _installed_topics() -> bytes:
    """Returns all topics of the documentation of this Python."""
    from pydoc_data.topics import topics

    return "\n".join(topics[key] for key in sorted(topics)).encode()


def _sequences(text: np.ndarray, num_sequences: int, context: int) -> Dataset:
    """Cuts a text into sequences, the last byte being a target alone: the target of a byte is the next byte."""
    used = num_sequences * context
    inputs, targets = text[:used].reshape(-1, context), text[1 : used + 1].reshape(-1, context)
    held_out = np.arange(num_sequences) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    train, test = ((inputs[part], targets[part]) for part in (~held_out, held_out))
    digest = hashlib.sha256()
    for array in (*train, *test):
        digest.update(str((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return Dataset(Arrays(*train), Arrays(*test), digest.hexdigest())

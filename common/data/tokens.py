"""Texts as tokens: their bytes, or the tokens of a tokenizer.json, which the library tokenizers reads."""

import functools
import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from common.errors import UserError
from common.progress import no_progress

# Between texts, and between a document and its summary: this token of the vocabulary, or token 0 where it has none; of bytes, byte 0.
END_OF_TEXT = "<|endoftext|>"
# What makes a model of the library draw tokens: of BPE, and of Unigram.
RANDOM = ("dropout", "alpha", "nbest_size")


class Vocabulary(NamedTuple):
    """What the tokens of a model stand for.

    `num_tokens`: their number; a token is an integer from 0. `unit`: what they are called. `separator`: the token between texts, an array
    of one. `encode(texts, on_progress)`: one array with the tokens of texts, which are given as bytes, and separators between them.
    """

    num_tokens: int
    unit: str
    separator: np.ndarray
    encode: Callable


BYTES = Vocabulary(
    256, "bytes", np.zeros(1, np.uint8), lambda texts, on_progress=no_progress: np.frombuffer(b"\0".join(texts), np.uint8)
)  # fmt: skip


@functools.cache
def vocabulary(path):
    """Returns the Vocabulary of a tokenizer file, or BYTES for None. Raises UserError for a file that is none."""
    if path is None:
        return BYTES
    # Its threads would compete with the rank's, and a program that has used them must not fork.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Imported here, since the runs on bytes do without.
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
        num_tokens = max(tokenizer.get_vocab().values()) + 1
    except Exception as error:  # The library raises no class of its own; a vocabulary without tokens has no maximum.
        reason = " ".join(str(error).split())
        raise UserError(f"--tokenizer {path} cannot be read as a tokenizer ({reason}); give a tokenizer.json, or leave it out") from None
    random = {name: f"{value:g}" for name in RANDOM if (value := getattr(tokenizer.model, name, None))}
    if random:
        named = ", ".join(f"{name} {value}" for name, value in random.items())
        raise UserError(
            f"--tokenizer {path} encodes a text differently each time ({named} of its model), and every rank would have other data; "
            f"set {', '.join(random)} to null in it"
        )
    # A file may ask for both.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    separator = np.array([tokenizer.token_to_id(END_OF_TEXT) or 0], np.min_scalar_type(num_tokens - 1))
    return Vocabulary(num_tokens, "tokens", separator, functools.partial(_encode, path, tokenizer, separator))


def _encode(path, tokenizer, separator, texts, on_progress=no_progress):
    parts, num_done, num_bytes = [separator[:0]], 0, sum(map(len, texts))
    for text in texts:
        try:
            (encoding,) = tokenizer.encode_batch_fast([text.decode(errors="replace")], add_special_tokens=False)
        except Exception as error:  # The library raises no class of its own.
            reason = " ".join(str(error).split())
            raise UserError(f"--tokenizer {path} cannot encode the text ({reason}); give one that has a token for unknown words") from None
        parts += [np.array(encoding.ids, separator.dtype), separator]
        num_done += len(text)
        on_progress(num_done, num_bytes)
    return np.concatenate(parts[:-1] if texts else parts)

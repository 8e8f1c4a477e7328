"""Texts as tokens: their bytes, or the tokens of a tokenizer.json, which the library tokenizers reads."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from common.errors import UserError
from common.progress import OnProgress, no_progress

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# The token that separates texts, and a document from its summary. A vocabulary without it has token 0 there, and bytes have byte 0.
END_OF_TEXT = "<|endoftext|>"
# The options of the library's models BPE and Unigram that make them draw tokens.
RANDOM = ("dropout", "alpha", "nbest_size")


class Encode(Protocol):
    """Encodes texts, which are given as bytes, into one array of their tokens, with separators between them."""

    def __call__(self, texts: Sequence[bytes], on_progress: OnProgress = no_progress) -> np.ndarray: ...


class Vocabulary(NamedTuple):
    """The tokens of a model, which are integers from 0.

    `unit` is their name in messages. `separator` is an array of the one token between texts.
    """

    num_tokens: int
    unit: str
    separator: np.ndarray
    encode: Encode


def _encode_as_bytes(texts: Sequence[bytes], on_progress: OnProgress = no_progress) -> np.ndarray:
    return np.frombuffer(b"\0".join(texts), np.uint8)


BYTES = Vocabulary(256, "bytes", np.zeros(1, np.uint8), _encode_as_bytes)


@functools.cache
def vocabulary(path: Path | None) -> Vocabulary:
    """Reads the vocabulary of a tokenizer file; without a file it is BYTES. Raises UserError for a file that is no tokenizer."""
    if path is None:
        return BYTES
    # The library's threads would compete with the rank's, and a program that has used them must not fork.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Imported here, since runs on bytes do not need it.
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
    # A file may ask for truncation and padding.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    separator = np.array([tokenizer.token_to_id(END_OF_TEXT) or 0], np.min_scalar_type(num_tokens - 1))
    return Vocabulary(num_tokens, "tokens", separator, functools.partial(_encode, path, tokenizer, separator))


def _encode(
    path: Path, tokenizer: Tokenizer, separator: np.ndarray, texts: Sequence[bytes], on_progress: OnProgress = no_progress
) -> np.ndarray:
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

"""Text as sequences of bytes: Python's documentation, and TinyStories from local files."""

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from common.data import folders
from common.data.samples import Dataset, InMemory
from common.errors import UserError

# The inputs and targets of sequences.
Sequences = tuple[np.ndarray, np.ndarray]

# The chapter on the standard types of the documentation of Python 3.11.7 (PSF License), of 38 KB, and its SHA-256. The topic `types` of an
# installed Python differs from release to release, so that machines with different releases would not train the same.
TYPES = Path(__file__).with_name("python_types.txt.gz")
TYPES_DIGEST = "1935c3930a60ffcee3c5e5f639e480b173c7e797ef37f574ab07861dbf44a1db"
# If no file name marks held-out data, one sequence in this many is held out.
HELD_OUT_EVERY = 10
HELD_OUT_NAMES = ("valid", "validation", "val", "test", "dev")
ENDINGS = (".txt", ".txt.gz")
CONTENT = "TinyStories as text"
END_OF_STORY = b"<|endoftext|>"


def reader(name: str, folder: Path | None, context: int) -> Callable[[], Dataset]:
    """Returns a function that reads a text dataset as sequences of `context` bytes.

    Files are located now. Raises UserError if there are none; the function raises it for damaged files.
    """
    if name.startswith("pydoc"):
        text = _types() if name == "pydoc-types" else _installed_topics()
        return lambda: _split(_sequences([text], context, name))
    train, held_out = find(folder)
    if held_out:
        return lambda: _dataset(_stories(train, context), _stories(held_out, context))
    return lambda: _split(_stories(train, context))


def _types() -> bytes:
    """Reads the text of TYPES. Raises UserError where it has changed."""
    text = _content(TYPES)
    if hashlib.sha256(text).hexdigest() != TYPES_DIGEST:
        raise UserError(f"{TYPES} is not the text that every machine trains on; restore it (git checkout)")
    return text


def _installed_topics() -> bytes:
    """Returns all topics of the documentation of this Python."""
    from pydoc_data.topics import topics

    return "\n".join(topics[key] for key in sorted(topics)).encode()


def find(folder: Path | None) -> tuple[list[Path], list[Path]]:
    """Returns the training files and the held-out files of TinyStories, in the order of their names."""
    with folders.searching(folder, "tinystories", CONTENT) as data_dir:
        # Hidden files are not data: macOS leaves `._NAME` beside NAME, and editors leave copies.
        files = sorted(path for path in data_dir.glob("[!.]*") if path.is_file() and path.name.endswith(ENDINGS))
    doubled = [path for path in files if path.with_name(f"{path.name}.gz") in files]
    if doubled:
        raise UserError(f"{doubled[0]} also exists gzipped and would be read twice; move one of the two away")
    held_out = [path for path in files if set(re.split(r"[^a-z]+", path.name.lower())) & set(HELD_OUT_NAMES)]
    train = [path for path in files if path not in held_out]
    if not train:
        set_aside = f"; held out by name: {', '.join(path.name for path in held_out)}" if held_out else ""
        raise UserError(f"--data-dir {folder} has no training file ({', '.join(ENDINGS)}){set_aside}; give the folder with {CONTENT}")
    return train, held_out


def _stories(paths: list[Path], context: int) -> Sequences:
    """Reads stories, and concatenates them."""
    texts = [story for path in paths for story in _content(path).split(END_OF_STORY)]
    return _sequences(texts, context, ", ".join(map(str, paths)))


def _sequences(texts: Sequence[bytes], context: int, where: str) -> Sequences:
    """Joins texts, with a zero byte between two, and cuts them into sequences of shape (sequences, context).

    The target of a byte is the next byte.
    """
    text = np.frombuffer(b"\0".join(texts), np.uint8)
    num_sequences = (len(text) - 1) // context
    if num_sequences < 1:
        raise UserError(
            f"{where}: {len(text)} bytes of text are less than one sequence of {context}; "
            "give more text, or choose a workload with a shorter context"
        )
    used = num_sequences * context
    return text[:used].reshape(-1, context), text[1 : used + 1].reshape(-1, context)


def _split(sequences: Sequences) -> Dataset:
    inputs, targets = sequences
    held_out = np.arange(len(inputs)) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    if not held_out.any():
        raise UserError(
            f"{len(inputs)} sequences are too few to hold out one in {HELD_OUT_EVERY}; "
            f"give more text, or a separate file with {HELD_OUT_NAMES[0]} in its name"
        )
    return _dataset((inputs[~held_out], targets[~held_out]), (inputs[held_out], targets[held_out]))


def _dataset(train: Sequences, test: Sequences) -> Dataset:
    digest = hashlib.sha256()
    for array in (*train, *test):
        digest.update(str((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return Dataset(InMemory(*train), InMemory(*test), digest.hexdigest())


def _content(path: Path) -> bytes:
    return folders.content(path, path.name.endswith(".gz"))

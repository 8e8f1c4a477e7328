"""Text as sequences of bytes, or of other tokens: Python's documentation, and TinyStories and XSum from local files."""

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from common.data import folders
from common.data.samples import Dataset, InMemory
from common.errors import UserError
from common.progress import OnProgress, no_progress
from common.tokens import BYTES, END_OF_TEXT, Vocabulary

# The inputs and targets of sequences.
Sequences = tuple[np.ndarray, np.ndarray]

# The chapter on the standard types of the documentation of Python 3.11.7 (PSF License), of 38 KB, and its SHA-256. The topic `types` of an
# installed Python differs from release to release, so that machines with different releases would not train the same.
TYPES = Path(__file__).with_name("python_types.txt.gz")
TYPES_DIGEST = "1935c3930a60ffcee3c5e5f639e480b173c7e797ef37f574ab07861dbf44a1db"
# If no file name marks held-out data, one sequence in this many is held out.
HELD_OUT_EVERY = 10
HELD_OUT_NAMES = ("valid", "validation", "val", "test", "dev")
# The endings of the names of a dataset's files, and the content of its folder in messages.
ENDINGS = {"tinystories": (".txt", ".jsonl", ".txt.gz", ".jsonl.gz"), "xsum": (".jsonl", ".jsonl.gz")}
CONTENT = {
    "tinystories": "TinyStories as text or JSON lines",
    "xsum": 'XSum as JSON lines, {"document": …, "summary": …} each',
}
END_OF_STORY = END_OF_TEXT.encode()


def reader(name: str, folder: Path | None, context: int, vocabulary: Vocabulary = BYTES) -> Callable[..., Dataset]:
    """Returns a function that reads a text dataset as sequences of `context` tokens.

    Files are located now. Raises UserError if there are none; the function raises it for damaged files. Its argument, an OnProgress, is
    called while it encodes texts.
    """
    if name.startswith("pydoc"):
        text = _types() if name == "pydoc-types" else _installed_topics()
        return lambda on_progress=no_progress: _split(_sequences([text], context, vocabulary, on_progress, name))
    train, held_out = find(name, folder)
    read = _stories if name == "tinystories" else _summaries

    def dataset(on_progress: OnProgress = no_progress) -> Dataset:
        if not held_out:
            return _split(read(train, context, vocabulary, on_progress))
        return _dataset(*(read(paths, context, vocabulary, on_progress) for paths in (train, held_out)))

    return dataset


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


def find(name: str, folder: Path | None) -> tuple[list[Path], list[Path]]:
    """Returns the training files and the held-out files of a dataset, in the order of their names."""
    with folders.searching(folder, name, CONTENT[name]) as data_dir:
        files = [Path(entry.path) for entry in folders.visible(data_dir) if entry.is_file() and entry.name.endswith(ENDINGS[name])]
    doubled = [path for path in files if path.with_name(f"{path.name}.gz") in files]
    if doubled:
        raise UserError(f"{doubled[0]} also exists gzipped and would be read twice; move one of the two away")
    held_out = [path for path in files if set(re.split(r"[^a-z]+", path.name.lower())) & set(HELD_OUT_NAMES)]
    train = [path for path in files if path not in held_out]
    if not train:
        set_aside = f"; held out by name: {', '.join(path.name for path in held_out)}" if held_out else ""
        raise UserError(
            f"--data-dir {folder} has no training file ({', '.join(ENDINGS[name])}){set_aside}; give the folder with {CONTENT[name]}"
        )
    return train, held_out


def _stories(paths: list[Path], context: int, vocabulary: Vocabulary, on_progress: OnProgress) -> Sequences:
    """Reads stories, and concatenates them."""
    texts = []
    for path in paths:
        if path.name.endswith((".txt", ".txt.gz")):
            texts += _content(path).split(END_OF_STORY)
        else:
            texts += [_text(line, ("story", "text"), where) for where, line in _json_lines(path)]
    return _sequences(texts, context, vocabulary, on_progress, _named(paths))


def _summaries(paths: list[Path], context: int, vocabulary: Vocabulary, on_progress: OnProgress) -> Sequences:
    """Reads documents and summaries, one sequence for each. Only targets of the summary count.

    The summary is truncated to half of the sequence, and the document to the remaining tokens.
    """
    contents = itertools.chain.from_iterable(map(_json_lines, paths))
    # XSum has empty articles.
    samples = [
        [_text(content, ("document",), where, may_be_empty=True), _text(content, ("summary",), where)] for where, content in contents
    ]
    if not samples:
        raise UserError(f"{_named(paths)}: no summary found; give {CONTENT['xsum']}")
    separator = vocabulary.separator
    inputs = np.zeros((len(samples), context), separator.dtype)
    targets = np.full((len(samples), context), -1, np.promote_types(separator.dtype, np.int8))
    for row, sample in enumerate(samples):
        document, summary = (vocabulary.encode([text]) for text in sample)
        ending = np.concatenate([separator, summary[: context // 2], separator])
        document = document[: context + 1 - len(ending)]
        tokens = np.concatenate([document, ending])
        inputs[row, : len(tokens) - 1] = tokens[:-1]
        targets[row, len(document) : len(tokens) - 1] = tokens[len(document) + 1 :]
        on_progress(row + 1, len(samples))
    return inputs, targets


def _sequences(texts: Sequence[bytes], context: int, vocabulary: Vocabulary, on_progress: OnProgress, where: str) -> Sequences:
    """Encodes texts as sequences of shape (sequences, context). The target of a token is the next token."""
    tokens = vocabulary.encode(texts, on_progress)
    num_sequences = (len(tokens) - 1) // context
    if num_sequences < 1:
        raise UserError(
            f"{where}: {len(tokens)} {vocabulary.unit} of text are less than one sequence of {context}; "
            "give more text, or choose a workload with a shorter context"
        )
    used = num_sequences * context
    return tokens[:used].reshape(-1, context), tokens[1 : used + 1].reshape(-1, context)


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


def _json_lines(path: Path) -> Iterator[tuple[str, object]]:
    """Yields the location and the content of each non-empty line."""
    for number, line in enumerate(_content(path).splitlines(), 1):
        if line.strip():
            where = f"{path}, line {number}"
            try:
                content = json.loads(line)
            except ValueError as error:
                raise UserError(f"{where} is not JSON ({error}); every line must be one object") from None
            yield where, content


def _text(content: object, keys: Sequence[str], where: str, may_be_empty: bool = False) -> bytes:
    """Returns the text of the first key that is present in a JSON object."""
    text = next((content[key] for key in keys if key in content), None) if isinstance(content, dict) else None
    if not isinstance(text, str) or not (text or may_be_empty):
        raise UserError(f"{where} has no text in {' or '.join(map(repr, keys))}; every line must be an object with one")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UserError(f"{where} has a lone surrogate in its text; write the whole character or remove it") from None


def _named(paths: list[Path]) -> str:
    return ", ".join(map(str, paths))

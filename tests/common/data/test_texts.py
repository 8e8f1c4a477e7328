"""Text as sequences of bytes: Python's documentation, a chapter of it or all of it."""

import gzip
from pydoc_data import topics

import numpy as np
import pytest

from common.data import texts
from tests.support.mistakes import refused


def expect_text(data, text):
    """Expects every tenth sequence to be held out, the target of a byte to be the next one, and only bytes at the end to be left out."""
    num_sequences = len(data.train.inputs) + len(data.test.inputs)
    held_out = np.arange(num_sequences) % 10 == 9
    inputs, targets = np.empty((2, num_sequences, data.train.inputs.shape[1]), np.uint8)
    inputs[~held_out], inputs[held_out], targets[~held_out], targets[held_out] = *(data.train.inputs, data.test.inputs), *(
        data.train.targets, data.test.targets,
    )  # fmt: skip
    assert bytes(inputs.ravel()) == text[: inputs.size]
    assert bytes(targets.ravel()) == text[1 : inputs.size + 1]
    assert 0 < len(text) - inputs.size <= inputs.shape[1]


def test_the_sequences_of_pydoc_are_its_topics_in_the_order_of_their_names(monkeypatch):
    data = texts.reader("pydoc", 64)()
    expect_text(data, "\n".join(topics.topics[key] for key in sorted(topics.topics)).encode())
    monkeypatch.setattr(topics, "topics", dict(reversed(topics.topics.items())))
    assert texts.reader("pydoc", 64)().digest == data.digest != texts.reader("pydoc", 32)().digest


def test_the_chapter_about_types_is_the_same_with_every_python(monkeypatch, tmp_path):
    monkeypatch.setattr(topics, "topics", {"types": "another release"})
    data = texts.reader("pydoc-types", 64)()
    assert data.digest == "67b633c43fbfe7228a707a6b24bd7cf7bbfb7a5edf8791f0026e40a48d42a4aa"
    expect_text(data, gzip.decompress(texts.TYPES.read_bytes()))
    monkeypatch.setattr(texts, "TYPES", tmp_path / "types.txt.gz")
    (tmp_path / "types.txt.gz").write_bytes(gzip.compress(b"another text"))
    with refused("is not the text that every machine trains on"):
        texts.reader("pydoc-types", 64)


@pytest.mark.parametrize(("length", "num_sequences"), [(161, 10), (176, 10), (177, 11), (160, None), (0, None)])
def test_bytes_that_fill_no_sequence_are_left_out_and_a_text_of_fewer_than_ten_is_refused(length, num_sequences, monkeypatch):
    text = "".join(chr(32 + number % 90) for number in range(length))
    monkeypatch.setattr(topics, "topics", {"all": text})
    if num_sequences is None:
        with refused(f"the {length} bytes of pydoc are less than 10 sequences of 16, of which one is held out; choose a shorter --context"):
            texts.reader("pydoc", 16)
        return
    data = texts.reader("pydoc", 16)()
    assert len(data.train) + len(data.test) == num_sequences
    expect_text(data, text.encode())


def test_the_digest_changes_with_one_byte_of_any_part(monkeypatch):
    digests = set()
    # The first byte is an input alone, the last a target alone, and the last tenth is held out.
    for place in (0, 80, 150, 160, None):
        monkeypatch.setattr(topics, "topics", {"all": "".join("xa"[number != place] for number in range(161))})
        digests.add(texts.reader("pydoc", 16)().digest)
    assert len(digests) == 5

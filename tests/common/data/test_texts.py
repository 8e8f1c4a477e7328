"""Text as sequences of bytes: Python's documentation, and TinyStories in every file format."""

import gzip
import re
from pydoc_data import topics

import numpy as np
import pytest

from common.data import texts
from tests.support.mistakes import refusal, refused

CONTEXT = 16
STORIES = [f"Once upon a time there were {number} cats and a caf\u00e9.\n" for number in range(12)]


def read(name, folder=None, context=CONTEXT):
    return texts.reader(name, folder, context)()


def joined(inputs, targets):
    """The text of sequences that follow one another; targets are the inputs one byte on."""
    assert (inputs.ravel()[1:] == targets.ravel()[:-1]).all()
    return bytes(inputs.ravel()) + bytes(targets.ravel()[-1:])


def in_order(data):
    """Returns (inputs, targets) of all sequences in their order before every tenth was held out."""
    num_sequences = len(data.train.inputs) + len(data.test.inputs)
    held_out = np.arange(num_sequences) % 10 == 9
    assert held_out.sum() == len(data.test.inputs) > 0
    arrays = []
    for train, test in ((data.train.inputs, data.test.inputs), (data.train.targets, data.test.targets)):
        arrays.append(np.empty((num_sequences, train.shape[1]), train.dtype))
        arrays[-1][~held_out], arrays[-1][held_out] = train, test
    return arrays


def assert_has_text(inputs, targets, text):
    """Asserts that sequences have a text, but for the end of it that fills none."""
    part = joined(inputs, targets)
    assert text.startswith(part)
    assert len(text) - len(part) < inputs.shape[1]


def test_the_sequences_of_pydoc_are_its_topics_in_the_order_of_their_names(monkeypatch):
    data = read("pydoc", context=64)
    assert_has_text(*in_order(data), "\n".join(topics.topics[key] for key in sorted(topics.topics)).encode())
    monkeypatch.setattr(topics, "topics", dict(reversed(topics.topics.items())))
    assert read("pydoc", context=64).digest == data.digest != read("pydoc", context=32).digest


def test_the_chapter_about_types_is_the_same_with_every_python(monkeypatch, tmp_path):
    monkeypatch.setattr(topics, "topics", {"types": "another release"})
    data = read("pydoc-types", context=64)
    assert data.digest == "67b633c43fbfe7228a707a6b24bd7cf7bbfb7a5edf8791f0026e40a48d42a4aa"
    assert_has_text(*in_order(data), gzip.decompress(texts.TYPES.read_bytes()))
    monkeypatch.setattr(texts, "TYPES", tmp_path / "types.txt.gz")
    (tmp_path / "types.txt.gz").write_bytes(gzip.compress(b"another text"))
    with refused("is not the text that every machine trains on"):
        read("pydoc-types")


@pytest.mark.parametrize(("length", "num_sequences"), [(161, 10), (176, 10), (177, 11), (321, 20)])
def test_every_tenth_sequence_is_held_out_and_bytes_that_fill_none_are_left_out(length, num_sequences, tmp_path):
    (tmp_path / "stories.txt").write_bytes(bytes(32 + number % 90 for number in range(length)))
    assert joined(*in_order(read("tinystories", tmp_path))) == bytes(32 + number % 90 for number in range(16 * num_sequences + 1))


def test_the_digest_changes_with_one_byte_of_any_part_and_with_the_split_and_the_context_of_the_same_bytes(tmp_path):
    text, first, last = b"abc" * 11, b"xbc" + b"abc" * 10, b"abc" * 10 + b"abx"
    # The first byte of a file is an input alone, the last a target alone.
    cases = [(text, text, 16), (first, text, 16), (last, text, 16), (text, first, 16), (text, last, 16)]
    cases += [(b"a" * 33, b"a" * 17, 16), (b"a" * 17, b"a" * 33, 16), (b"a" * 33, b"a" * 17, 8)]
    digests = set()
    for train, valid, context in cases:
        (tmp_path / "train.txt").write_bytes(train)
        (tmp_path / "valid.txt").write_bytes(valid)
        digests.add(read("tinystories", tmp_path, context).digest)
    assert len(digests) == len(cases)


def as_text(stories):
    return "<|endoftext|>".join(stories).encode()


def write(path, data):
    path.write_bytes(gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data)


@pytest.mark.parametrize("end", [".txt", ".txt.gz"])
@pytest.mark.parametrize("held_out", [None, "TinyStoriesV2-GPT4-valid", "stories_val", "test", "DEV"])
def test_stories_have_a_zero_byte_between_two_and_files_are_held_out_by_name(held_out, end, tmp_path):
    write(tmp_path / f"TinyStories-train{end}", as_text(STORIES))
    text = "\0".join(STORIES).encode()
    if held_out is None:
        assert_has_text(*in_order(read("tinystories", tmp_path)), text)
        return
    write(tmp_path / f"{held_out}{end}", as_text(STORIES[:2]))
    data = read("tinystories", tmp_path)
    assert_has_text(data.train.inputs, data.train.targets, text)
    assert_has_text(data.test.inputs, data.test.targets, "\0".join(STORIES[:2]).encode())


def test_files_are_read_in_order_of_their_names_and_others_and_hidden_ones_are_ignored(tmp_path):
    (tmp_path / "1.txt").write_bytes(as_text(STORIES[6:]))
    (tmp_path / "0.txt").write_bytes(as_text(STORIES[:6]))
    (tmp_path / "2.txt").mkdir()
    for name in ("README.md", "0.json", "._0.txt", ".ipynb_checkpoints/train-checkpoint.txt", ".train.txt.swp.txt", ".valid.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\0\5\26\7" + bytes(4092))
    assert_has_text(*in_order(read("tinystories", tmp_path)), "\0".join(STORIES).encode())


@pytest.mark.parametrize("files", [[], ["stories.json", "README"], ["valid.txt", "test.txt.gz"]])
def test_a_folder_without_training_files_is_an_error_before_anything_is_read(files, tmp_path):
    for file in files:
        (tmp_path / file).write_text("{}")
    with refused("has no training file (.txt, .txt.gz)", "; give the folder with TinyStories as text"):
        texts.reader("tinystories", tmp_path, CONTEXT)


PACKED = gzip.compress(b"a" * 1000, mtime=0)
DAMAGED = r"a\.txt\.gz cannot be read \(.*\); copy it again"


@pytest.mark.parametrize(
    ("file", "data", "message"),
    [
        ("a.txt.gz", PACKED[:-9], DAMAGED),
        # A page that says why there is no such file, as downloads leave it.
        ("a.txt.gz", b"Not found" * 100, DAMAGED),
        # Its sum does not agree.
        ("a.txt.gz", PACKED[:-8] + bytes(8), DAMAGED),
        # After the header there is nothing that can be unpacked.
        ("a.txt.gz", PACKED[:10] + b"\xff" * 20, DAMAGED),
        ("a.txt", b"", r"0 bytes of text are less than one sequence of 16; give more text"),
        ("a.txt", b"a" * 16, r"16 bytes of text are less than one sequence of 16; give more text"),
        ("a.txt", b"a" * 160, r"9 sequences are too few to hold out one in 10; give more text, or a separate file with valid in its name"),
    ],
)
def test_a_damaged_or_empty_file_gives_a_one_line_error_when_it_is_read(file, data, message, tmp_path):
    (tmp_path / file).write_bytes(data)
    text = refusal(texts.reader("tinystories", tmp_path, CONTEXT))
    assert re.search(message, text), text

"""The tokens of a tokenizer.json: those that the library gives, whatever else the file asks for."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from common import tokens
from common.data import texts
from tests.support import tokenizer
from tests.support.mistakes import refused

STORIES = ["Once upon a time there was a caf\u00e9.", "The end of it. " * 40, "A list is mutable; a tuple is not."] * 20


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tokenizer.write(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


def test_texts_have_the_tokens_of_the_library_and_its_separator_between_them(path):
    vocabulary, library = tokens.vocabulary(path), Tokenizer.from_file(str(path))
    assert (vocabulary.num_tokens, vocabulary.separator.tolist()) == (300, [1])
    progress = []
    encoded = vocabulary.encode([story.encode() for story in STORIES], lambda *of_all: progress.append(of_all))
    assert encoded.dtype == np.uint16
    assert library.decode(encoded.tolist(), skip_special_tokens=False) == "<|endoftext|>".join(STORIES)
    assert encoded.tolist()[: np.argmax(encoded == 1)] == library.encode(STORIES[0]).ids
    # Text by text, of all bytes.
    num_bytes = np.cumsum([len(story.encode()) for story in STORIES])
    assert progress == [(num_done, num_bytes[-1]) for num_done in num_bytes]
    assert len(vocabulary.encode([])) == 0


def test_a_text_is_encoded_whole_whatever_the_file_asks_for(tmp_path, path):
    short, text = tokenizer.write(tmp_path / "tokenizer.json", enable_truncation=4), b"a long text " * 9
    assert tokens.vocabulary(short).encode([text]).tolist() == tokens.vocabulary(path).encode([text]).tolist()


def test_a_vocabulary_with_gaps_is_as_large_as_its_largest_token_asks_for_and_without_a_separator_it_is_token_0(tmp_path):
    Tokenizer(models.WordLevel({"a": 0, "b": 70_000}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    vocabulary = tokens.vocabulary(tmp_path / "tokenizer.json")
    assert (vocabulary.num_tokens, vocabulary.separator.tolist()) == (70_001, [0])
    assert vocabulary.encode([b"a", b"b"]).tolist() == [0, 0, 70_000]


def test_a_summary_of_tokens_follows_its_document(path, tmp_path):
    for name in ("train", "valid"):
        (tmp_path / f"{name}.jsonl").write_text('{"document": "the object the object", "summary": "a list"}\n')
    data, library = texts.reader("xsum", tmp_path, 32, tokens.vocabulary(path))(), Tokenizer.from_file(str(path))
    document, summary = (library.encode(text).ids for text in ("the object the object", "a list"))
    whole = [*document, 1, *summary, 1]
    assert data.train.inputs[0].tolist() == whole[:-1] + [0] * (33 - len(whole))
    assert data.train.targets[0].tolist() == [-1] * len(document) + [*summary, 1] + [-1] * (33 - len(whole))


@pytest.mark.parametrize("dropout", [0.5, 0.01, 1.0])
def test_a_tokenizer_that_draws_its_tokens_is_refused(dropout, tmp_path):
    file = tmp_path / "tokenizer.json"
    for value in (None, 0.0, dropout):
        Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")], dropout=value)).save(str(file))
        tokens.vocabulary.cache_clear()
        if not value:
            assert tokens.vocabulary(file).encode([b"ab"]).tolist() == [2]
    with refused(f"--tokenizer {file} encodes a text differently each time (dropout {dropout:g}", "; set dropout to null in it"):
        tokens.vocabulary(file)


def test_what_unigram_may_draw_by_does_not_come_with_a_file(tmp_path):
    # Where it does in a later version of the library, such a file is refused.
    file, model = tmp_path / "tokenizer.json", models.Unigram([("a", -1.0), ("b", -1.0), ("ab", -1.0)], 0, False)
    model.alpha, model.nbest_size = 0.1, 64
    Tokenizer(model).save(str(file))
    content = json.loads(file.read_text())
    content["model"] |= {"alpha": 0.1, "nbest_size": -1}
    file.write_text(json.dumps(content))
    encode = tokens.vocabulary(file).encode
    assert len({tuple(encode([b"abababab"]).tolist()) for _ in range(50)}) == 1


WORDS = {"a": 0, "b": 1}


@pytest.mark.parametrize(
    "model",
    [
        models.WordLevel(WORDS, unk_token="[UNK]"),
        models.WordPiece(WORDS, unk_token="[UNK]"),
        models.Unigram([("a", -1.0), ("b", -1.0)]),
        models.BPE(WORDS, [], unk_token="[UNK]"),
    ],
)
def test_a_text_that_a_tokenizer_has_no_token_for_is_refused_in_one_line(model, tmp_path):
    file = tmp_path / "tokenizer.json"
    Tokenizer(model).save(str(file))
    encode = tokens.vocabulary(file).encode
    assert encode([b"a"]).tolist() == [0]
    with refused(f"--tokenizer {file} cannot encode the text (", "; give one that has a token for unknown words"):
        encode([b"a", b"z"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        ("Once upon a time", "expected value at line 1"),
        ('{"a": 1}', "expected"),
        ("[]", "cannot be read as a tokenizer"),
        ("", "EOF"),
        ('{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}', "cannot be read as a tokenizer"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused_in_one_line(content, message, tmp_path):
    file = tmp_path / "tokenizer.json"
    if content is not None:
        file.write_text(content)
    with refused(f"--tokenizer {file} cannot be read as a tokenizer (", message):
        tokens.vocabulary(file)

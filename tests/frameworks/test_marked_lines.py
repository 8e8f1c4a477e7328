"""The step of a backend on PyTorch differs from that of `single` only in marked lines."""

import ast
import difflib

import pytest

from common import declarations
from tests.support.backends import ON_PYTORCH

MARK = "# backend"


def step(text):
    """The lines of the epoch's loop in a backend's file, without comments and empty ones."""
    (trainer,) = (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    (loop,) = (node for node in trainer.body if isinstance(node, ast.FunctionDef) and node.name == "train_epoch")
    lines = text.splitlines()[loop.lineno - 1 : loop.end_lineno]
    return [line.rstrip() for line in lines if line.strip() and not line.strip().startswith("#")]


def differences(texts):
    """The unmarked lines of the steps in the backends' files, {name: text}, that differ from those of `single`, as (name, line)."""
    plain = step(texts["single"])
    for name, text in texts.items():
        lines = step(text)
        for kind, first, last, start, end in difflib.SequenceMatcher(a=plain, b=lines, autojunk=False).get_opcodes():
            new = lines[start:end]
            unlike = [line for line in new if not line.endswith(MARK)] or (plain[first:last] if not new else [])
            if kind != "equal" and unlike:
                yield name, unlike[0].strip()


def files():
    return {name: (declarations.FOLDER / f"{name}.py").read_text() for name in ON_PYTORCH}


def test_the_unmarked_lines_of_the_steps_of_all_backends_on_pytorch_are_the_same():
    texts = files()
    assert MARK not in "".join(step(texts["single"]))
    assert list(differences(texts)) == []


def test_the_loss_is_a_line_of_the_trainer_and_of_no_backend():
    for name, text in files().items():
        assert "loss(" not in text.replace("self.loss(inputs, targets, weights)", ""), name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("            self.optimizer.step()\n", ""),
        ("= is_last  # backend", "= is_last"),
        ("loss.detach()", "loss"),
    ],
)
def test_it_fails_when_someone_breaks_it(old, new):
    texts = files()
    assert old in texts["ddp"]
    texts["ddp"] = texts["ddp"].replace(old, new)
    assert "ddp" in dict(differences(texts))

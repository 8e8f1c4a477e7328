"""PyTorch backends differ from `single` only in marked lines, which are additional or replace a few lines of it."""

import ast
import difflib
import re

import pytest

from common import backends
from tests.support.backends import ON_PYTORCH

FRAMEWORKS = backends.FOLDER
MARK = "# backend"
MIN_SHARED_LINES = 28
MAX_MARKED_LINES = 24
MAX_REPLACED_LINES = 7
MAX_DIFFERENT_LINES = 29


def unmarked(text):
    """The lines of code without a mark, without comments and empty lines."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return [line for line in lines if not line.endswith(MARK) and not line.strip().startswith("#")]


def folded(text):
    """The text with the lines of its BACKEND declaration joined: it counts as one line, marked where its last one is."""
    return re.sub(r"^BACKEND = Backend\(\n(?:    .*\n)*\)", lambda found: " ".join(found[0].split()), text, flags=re.MULTILINE)


def complaints(texts):
    """Messages about differences in unmarked lines of the backends' files, {name: text}; empty if there are none."""
    wrong = []
    texts = {name: folded(text) for name, text in texts.items()}
    plain = unmarked(texts["single"])
    if len(plain) < MIN_SHARED_LINES:
        wrong.append(f"only {len(plain)} lines are shared")
    for name, text in texts.items():
        num_marked = sum(line.endswith(MARK) for line in text.splitlines())
        if num_marked > MAX_MARKED_LINES:
            wrong.append(f"{name} has {num_marked} marked lines")
        own = [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
        num_replaced = 0
        for kind, first, last, start, end in difflib.SequenceMatcher(a=plain, b=own, autojunk=False).get_opcodes():
            new = own[start:end]
            unlike = [line for line in new if not line.rstrip().endswith(MARK)] or (plain[first:last] if not new else [])
            if kind != "equal" and unlike:
                wrong.append(f"{name} differs from single in an unmarked line: {unlike[0].strip()}")
            elif kind == "replace":
                num_replaced += last - first
        if num_replaced > MAX_REPLACED_LINES:
            wrong.append(f"{name} replaces {num_replaced} lines of single")
    return wrong


def methods(text):
    """The names of the methods of the class Trainer, in order."""
    trainer = next(node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == "Trainer")
    return [node.name for node in trainer.body if isinstance(node, ast.FunctionDef)]


def files():
    return {name: (FRAMEWORKS / f"{name}.py").read_text() for name in ON_PYTORCH}


def test_the_unmarked_lines_of_all_backends_on_pytorch_are_the_same():
    assert complaints(files()) == []


@pytest.mark.parametrize("other", ["fsdp", "gradient_averaging"])
def test_few_lines_turn_ddp_into_another_way(other):
    texts = files()
    lines = difflib.unified_diff(texts["ddp"].splitlines(), texts[other].splitlines(), n=0)
    assert sum(line[0] in "+-" for line in list(lines)[2:]) <= MAX_DIFFERENT_LINES


def test_backends_of_every_framework_have_the_same_methods_in_the_same_order():
    promised = methods((FRAMEWORKS.parent / "common" / "trainer.py").read_text())
    for name in backends.declared():
        found = methods((FRAMEWORKS / f"{name}.py").read_text())
        assert [method for method in found if method in promised] == promised, name


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("            self.optimizer.step()\n", "", "ddp differs"),
        ("        dist.destroy_process_group()  # backend", "        dist.destroy_process_group()", "ddp differs"),
        ("loss.detach()", "loss", "ddp differs"),
        ("self.model.train()\n", "self.model.train()\n" + "        pass  # backend\n" * MAX_MARKED_LINES, "marked lines"),
        (
            "            for inputs, targets, weights, is_last in micro_batches:\n"
            "                self.model.require_backward_grad_sync = is_last  # backend\n"
            "                loss = pytorch.weighted_loss(self.model(inputs), targets, weights)\n"
            "                loss.backward()\n                losses.append(loss.detach())\n"
            "            self.optimizer.step()\n            observe(sum(losses))\n\n"
            "    def evaluate(self, batches):\n",
            "            self.own_step()  # backend\n\n    def evaluate(self, batches):  # backend\n",
            "replaces 8 lines",
        ),
    ],
)
def test_it_fails_when_someone_breaks_it(old, new, complaint):
    texts = files()
    assert old in texts["ddp"]
    texts["ddp"] = texts["ddp"].replace(old, new)
    assert any(complaint in text for text in complaints(texts))


def test_it_fails_when_everything_is_marked():
    texts = {name: "\n".join(f"{line}  {MARK}" for line in text.splitlines()) for name, text in files().items()}
    assert any("lines are shared" in text for text in complaints(texts))

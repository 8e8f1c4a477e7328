"""The step of a backend on PyTorch differs from that of `single` only in marked lines, and no backend overrides what it inherits."""

import ast
import difflib

import pytest

from common import backends
from tests.support.backends import ON_PYTORCH

FRAMEWORKS = backends.FOLDER
MARK = "# backend"
MIN_SHARED_LINES = 10
MAX_MARKED_LINES = 4
MAX_REPLACED_LINES = 2


def code(lines):
    """The lines without comments and empty ones."""
    return [line.rstrip() for line in lines if line.strip() and not line.strip().startswith("#")]


def classes(text):
    """The classes in a file."""
    return [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]


def methods(of_class):
    """{name: definition} of the methods of a class, in order."""
    return {node.name: node for node in of_class.body if isinstance(node, ast.FunctionDef)}


def step(text):
    """The lines of the epoch's loop in a backend's file."""
    (trainer,) = classes(text)
    loop = methods(trainer)["train_epoch"]
    return code(text.splitlines()[loop.lineno - 1 : loop.end_lineno])


def complaints(texts):
    """Messages about differences in unmarked lines of the steps in the backends' files, {name: text}; empty if there are none."""
    wrong = []
    plain = [line for line in step(texts["single"]) if not line.endswith(MARK)]
    if len(plain) < MIN_SHARED_LINES:
        wrong.append(f"only {len(plain)} lines are shared")
    for name, text in texts.items():
        lines = step(text)
        if (num_marked := sum(line.endswith(MARK) for line in lines)) > MAX_MARKED_LINES:
            wrong.append(f"{name} has {num_marked} marked lines")
        num_replaced = 0
        for kind, first, last, start, end in difflib.SequenceMatcher(a=plain, b=lines, autojunk=False).get_opcodes():
            new = lines[start:end]
            unlike = [line for line in new if not line.endswith(MARK)] or (plain[first:last] if not new else [])
            if kind != "equal" and unlike:
                wrong.append(f"{name} differs from single in an unmarked line: {unlike[0].strip()}")
            elif kind == "replace":
                num_replaced += last - first
        if num_replaced > MAX_REPLACED_LINES:
            wrong.append(f"{name} replaces {num_replaced} lines of single")
    return wrong


def files(names=ON_PYTORCH):
    return {name: (FRAMEWORKS / f"{name}.py").read_text() for name in names}


def test_the_unmarked_lines_of_the_steps_of_all_backends_on_pytorch_are_the_same():
    assert complaints(files()) == []


def test_marks_stand_in_the_step_only():
    for name, text in files(backends.declared()).items():
        marked = [line for line in text.splitlines() if line.endswith(MARK)]
        assert marked == [line for line in step(text) if line.endswith(MARK)], name


@pytest.mark.parametrize(("before", "after", "max_lines"), [("single", "ddp", 21), ("ddp", "fsdp", 22), ("ddp", "gradient_averaging", 25)])
def test_few_lines_turn_one_way_into_another(before, after, max_lines):
    texts = {name: code(text.splitlines()) for name, text in files((before, after)).items()}
    lines = difflib.unified_diff(texts[before], texts[after], n=0)
    assert sum(line[0] in "+-" for line in list(lines)[2:]) <= max_lines


def decorators(method):
    return {ast.unparse(decorator) for decorator in method.decorator_list}


def inherited():
    """{name: class} of the classes that backends derive theirs from."""
    paths = (FRAMEWORKS.parent / "common" / "trainer.py", *(FRAMEWORKS / "shared").rglob("*.py"))
    definitions = [of_class for path in paths for of_class in classes(path.read_text())]
    return {of_class.name: of_class for of_class in definitions if of_class.name.endswith("Trainer")}


def bases(of_class, among):
    """The classes that a class inherits from, the nearest first."""
    for base in of_class.bases:
        name = ast.unparse(base).rpartition(".")[2]
        if name in among:
            yield among[name]
            yield from bases(among[name], among)


def overrides(of_class, among):
    """The methods of a class that are not abstract where it inherits them."""
    for name in methods(of_class):
        definitions = [methods(base)[name] for base in bases(of_class, among) if name in methods(base)]
        if any("abstractmethod" not in decorators(definition) for definition in definitions):
            yield name


def test_what_a_backend_inherits_is_abstract_or_final():
    among = inherited()
    assert {"Trainer", "PyTorchTrainer", "OneProcessTrainer", "DistributedTrainer", "ModuleTrainer", "TensorFlowTrainer"} <= among.keys()
    for of_class in among.values():
        for name, method in methods(of_class).items():
            assert len({"abstractmethod", "final"} & decorators(method)) == 1, (of_class.name, name)
        assert list(overrides(of_class, among)) == [], of_class.name


def test_no_backend_overrides_what_it_inherits_and_all_have_the_same_methods_in_the_same_order():
    among = inherited()
    order = list(methods(among["Trainer"]))
    for name, text in files(backends.declared()).items():
        (trainer,) = classes(text)
        assert "Trainer" in [base.name for base in bases(trainer, among)], name
        assert list(overrides(trainer, among)) == [], name
        in_file = [method for method in methods(trainer) if method in order]
        assert in_file == [method for method in order if method in in_file], name
        assert "train_epoch" in in_file, name


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("            self.optimizer.step()\n", "", "ddp differs"),
        ("= is_last  # backend", "= is_last", "ddp differs"),
        ("loss.detach()", "loss", "ddp differs"),
        ("self.model.train()\n", "self.model.train()\n" + "        pass  # backend\n" * MAX_MARKED_LINES, "marked lines"),
        (
            "                loss.backward()\n                losses.append(loss.detach())\n            self.optimizer.step()\n",
            "            self.step()  # backend\n",
            "replaces 3 lines",
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


def test_it_fails_when_a_method_is_overridden():
    text = files()["ddp"].replace("    def communication(", "    def restore(self, state):\n        pass\n\n    def communication(")
    (trainer,) = classes(text)
    assert list(overrides(trainer, inherited())) == ["restore"]

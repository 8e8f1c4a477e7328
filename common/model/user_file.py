"""A user's file with a model of its own in plain PyTorch: how it is read, called and checked.

A mistake in it is a UserError, one line with the place in the file. PyTorch is the file's import: nothing here loads it.
"""

import ast
import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import json
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.random.mtrand import get_bit_generator

from common.command_line import shortened
from common.errors import UserError

REQUIRED = {
    "model": "def model(): returns an nn.Module",
    "data": "def data(): returns a training and a held-out data set",
    "loss": "def loss(outputs, targets): returns the mean over the samples of a batch",
}
OPTIONAL = ("optimizer", "scheduler", "metric", "finish", "collate", "layers")
# The constants of a file: the type of each, its default, and the values that it takes in words.
CONSTANTS: dict[str, tuple[type, Any, str, Callable[[Any], bool]]] = {
    "TARGET": (float, None, "a finite number", math.isfinite),
    "BATCH_SIZE": (int, 32, "a whole number from 1 on", lambda value: value >= 1),
    "EPOCHS": (int, 10, "a whole number from 1 on", lambda value: value >= 1),
    "LEARNING_RATE": (float, None, "a number above 0", lambda value: value > 0),
    "CLIP_NORM": (float, None, "a number above 0", lambda value: value > 0),
    "LOWER_IS_BETTER": (bool, False, "True or False", lambda _: True),
}
# The Mersenne Twister's: 624 words and the position in them.
NUMPY_STATE_BYTES = 4 * 625
KERAS_PACKAGES = {"keras", "tf_keras"}
OF_KERAS = (
    "the model is Keras's; backends on PyTorch take a file whose model() returns an nn.Module, "
    "and those on TensorFlow and Keras train Tandem's own workloads alone"
)


class UserFile(NamedTuple):
    """A file that has been imported.

    `arguments` are those of model(). The digest is of the source of the file, and of the modules in its folder that it imports.
    """

    path: Path
    content: ModuleType
    arguments: dict[str, Any]
    digest: str

    @property
    def name(self) -> str:
        return self.path.stem

    def has(self, name: str) -> bool:
        return hasattr(self.content, name)

    @property
    def has_accuracy(self) -> bool:
        """Whether the metric is a share, that of the right samples."""
        return not (self.has("finish") or self.constant("LOWER_IS_BETTER"))

    def constant(self, name: str) -> Any:
        return getattr(self.content, name, CONSTANTS[name][1])

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Calls a function of the file. Raises UserError for its exception."""
        return self.attempt(name, getattr(self.content, name), *arguments, **named)

    def attempt(self, name: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Calls a function that runs code of the file.

        Raises UserError for its exception, with the innermost line of the file in its traceback, or else that of `name`.
        """
        try:
            return function(*arguments, **named)
        except UserError:
            raise
        except (Exception, SystemExit) as problem:
            _refuse_at(self.path, _innermost_line(self.path, problem) or self._line_of(name), _describe(problem))

    def refuse(self, name: str | None, message: str) -> NoReturn:
        """Raises UserError with the line of the definition of a function, or of a constant."""
        _refuse_at(self.path, self._line_of(name) if name else None, message)

    def _line_of(self, name: str) -> int | None:
        if code := getattr(getattr(self.content, name, None), "__code__", None):
            return code.co_firstlineno
        for node in ast.parse(self.path.read_bytes()).body:
            if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
                return node.lineno
        return None


def _refuse_at(path: Path, line: int | None, message: str) -> NoReturn:
    raise UserError(f"{path.name}, line {line}: {message}" if line else f"{path.name}: {message}")


def _innermost_line(path: Path, problem: BaseException) -> int | None:
    line, trace = None, problem.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _describe(problem: BaseException) -> str:
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {shortened(text, 200)}" if text else type(problem).__name__


def located(source: str) -> Path:
    """Returns the path of FILE or package.module. Raises UserError where there is none."""
    path = Path(source)
    if path.suffix != ".py" and "/" not in source:
        try:
            spec = importlib.util.find_spec(source)
        except (ImportError, ValueError):
            spec = None
        path = Path(spec.origin) if spec and spec.origin else path
    if not path.is_file():
        raise UserError(f"--model {source} is neither a file nor a module; give the path of a Python file, or package.module")
    return path.resolve()


def name_of(source: str) -> str:
    """Returns the name of the workload of a file."""
    return located(source).stem


def read(source: str, arguments: str | None) -> UserFile:
    """Imports a file and checks what it defines. Raises UserError for a mistake in it."""
    return _read(located(source), arguments)


@functools.cache
def _read(path: Path, arguments: str | None) -> UserFile:
    file = UserFile(path, ModuleType(path.stem), _arguments_of(arguments), "")
    _import(file)
    file = file._replace(digest=_digest(file))
    for name, definition in REQUIRED.items():
        if not file.has(name):
            file.refuse(None, f"it has no {name}(); add {definition}")
    for name in (*REQUIRED, *OPTIONAL):
        if file.has(name) and not callable(getattr(file.content, name)):
            file.refuse(name, f"{name} is no function")
    for name, (kind, _, words, is_allowed) in CONSTANTS.items():
        value = file.constant(name)
        is_kind = isinstance(value, int | float if kind is float else kind) and (kind is bool or not isinstance(value, bool))
        if value is not None and not (is_kind and is_allowed(value)):
            file.refuse(name, f"{name} is {shortened(repr(value))}; it must be {words}")
    if file.has("finish") and not file.has("metric"):
        file.refuse("finish", "finish() needs metric(outputs, targets), which returns sums over the samples of a batch")
    target = file.constant("TARGET")
    if target is not None and not file.has("metric"):
        file.refuse("TARGET", "TARGET needs metric(outputs, targets), which returns the number of right samples")
    if target is not None and file.has_accuracy and not 0 < target <= 1:
        message = f"TARGET is {target!r}; it must be a share above 0, at most 1, but with finish() or LOWER_IS_BETTER = True"
        file.refuse("TARGET", message)
    if file.has("optimizer") and not file.constant("LEARNING_RATE"):
        file.refuse(
            "optimizer",
            "optimizer() needs a constant LEARNING_RATE, from which the schedule sets its rate",
        )
    return file


def _arguments_of(text: str | None) -> dict[str, Any]:
    try:
        arguments = json.loads(text) if text else {}
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise UserError(f"""--model-args is {shortened(text or "")!r}; give a JSON object, such as '{{"width": 512}}'""")
    return arguments


def _import(file: UserFile) -> None:
    """Runs the file as a module, of its package if it is in one. Modules beside it can be imported."""
    root, package = _package_of(file.path)
    sys.path[:0] = [str(file.path.parent), *([str(root)] if package else [])]
    file.content.__package__ = package or None
    file.content.__file__ = str(file.path)
    # Where dataclasses and pickle look a class of the file up.
    sys.modules.setdefault(file.name, file.content)
    try:
        exec(compile(file.path.read_bytes(), str(file.path), "exec"), file.content.__dict__)
    except SyntaxError as problem:
        where = problem.lineno if problem.filename == str(file.path) else None
        _refuse_at(file.path, where, f"SyntaxError: {problem.msg}")
    except (Exception, SystemExit) as problem:
        _refuse_at(file.path, _innermost_line(file.path, problem), _describe(problem))
    if "torch" not in sys.modules and KERAS_PACKAGES & sys.modules.keys():
        file.refuse("model", OF_KERAS)
    if "torch" not in sys.modules:
        file.refuse(None, "it does not import torch; the model is a PyTorch module")


def _package_of(path: Path) -> tuple[Path, str]:
    """Returns the folder from which a file is imported, and the name of its package: "" where its folder is none."""
    folder, names = path.parent, []
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(names)


def _digest(file: UserFile) -> str:
    """Returns the SHA-256 of the file and of the modules in its folder or package that it has imported, wherever they lie."""
    root, package = _package_of(file.path)
    folder, sha256 = root / package.partition(".")[0], hashlib.sha256(file.path.read_bytes())
    for name, module in sorted(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if path and Path(path) != file.path and Path(path).is_relative_to(folder) and "site-packages" not in path:
            sha256.update(name.encode() + Path(path).read_bytes())
    return sha256.hexdigest()


def torch() -> Any:
    """Returns PyTorch, which the file has imported."""
    return sys.modules["torch"]


def seed_generators(seed: int) -> None:
    """Seeds the random numbers that a file may draw: PyTorch's on the CPU, NumPy's and Python's."""
    torch().default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


@contextlib.contextmanager
def generators_kept() -> Iterator[None]:
    """Restores the generators that `seed_generators` seeds: dropout draws from one of them."""
    of_torch, of_numpy, of_python = torch().get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch().set_rng_state(of_torch)
        np.random.set_state(of_numpy)
        random.setstate(of_python)


@contextlib.contextmanager
def seeded(*seeds: int) -> Iterator[None]:
    """Is a context in which random numbers follow from the seeds alone. Afterwards the generators are as they were."""
    with generators_kept():
        seed_generators(_seed(*seeds))
        yield


def _seed(*seeds: int) -> int:
    return int(np.random.SeedSequence(seeds).generate_state(1)[0])


def states() -> tuple[bytes, bytes, tuple[Any, ...]]:
    """Returns the states of PyTorch's, NumPy's and Python's generators, which a draw changes.

    NumPy's is read from its memory: get_state() takes a tenth of a millisecond, and every batch is watched.
    """
    generator = get_bit_generator()
    is_default = isinstance(generator, np.random.MT19937)
    of_numpy = ctypes.string_at(generator.ctypes.state_address, NUMPY_STATE_BYTES) if is_default else repr(generator.state).encode()
    return torch().get_rng_state().numpy().tobytes(), of_numpy, random.getstate()


def draws(file: UserFile, dataset: Any, num_samples: int) -> bool:
    """Returns whether one of the first samples of a data set draws random numbers, as augmentation does."""
    with generators_kept():
        before = states()
        for index in range(min(len(dataset), num_samples)):
            sample(file, dataset, index)
        return states() != before


def collate_draws(file: UserFile, dataset: Any, num_samples: int) -> bool:
    """Returns whether collate() draws random numbers for a batch of the first samples."""
    with generators_kept():
        samples = [sample(file, dataset, index) for index in range(min(len(dataset), num_samples))]
        before = states()
        collated(file, samples)
        return states() != before


def seeded_sample(file: UserFile, dataset: Any, index: int, *seeds: int) -> Any:
    """Returns a sample whose random numbers follow from the seeds and its index alone, and so not from the number of ranks."""
    return seeded_samples(file, dataset, [index], *seeds)[0]


def seeded_samples(file: UserFile, dataset: Any, indices: Sequence[int], *seeds: int) -> list[Any]:
    """Does as `seeded_sample` for several: keeping the generators takes as long as seeding them."""
    samples = []
    with generators_kept():
        for index in indices:
            seed_generators(_seed(*seeds, index))
            samples.append(sample(file, dataset, index))
    return samples


def data_of(file: UserFile) -> tuple[Any, Any]:
    """Calls data(). Raises UserError where it does not return two map-style data sets."""
    with generators_kept():
        seed_generators(0)
        data = file.call("data")
    if not isinstance(data, tuple | list) or len(data) != 2:
        file.refuse("data", "data() must return two data sets, for training and held out: return train, test")
    for name, dataset in zip(("training", "held-out"), data, strict=True):
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            file.refuse("data", f"the {name} data set of data() is {type(dataset).__name__}; it must have len() and [i]")
        if not file.attempt("data", len, dataset):
            file.refuse("data", f"the {name} data set of data() is empty")
    return data[0], data[1]


def sample(file: UserFile, dataset: Any, index: int) -> Any:
    """Returns a sample of a data set. Raises UserError where it is no pair."""
    pair = file.attempt("data", dataset.__getitem__, index)
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        file.refuse("data", f"a data set of data() has {shortened(repr(pair))} at {index}; a sample is a pair (inputs, target)")
    return pair


def batch_of(file: UserFile, samples: list[Any], *seeds: int) -> tuple[Any, Any]:
    """Collates samples into inputs and targets as a DataLoader does, or by collate(), whose random numbers follow from the seeds."""
    if file.has("collate"):
        with seeded(*seeds):
            return collated(file, samples)
    return collated(file, samples)


def collated(file: UserFile, samples: list[Any]) -> tuple[Any, Any]:
    """Does as `batch_of`, with the generators as they are."""
    if file.has("collate"):
        pair = file.call("collate", samples)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            file.refuse("collate", f"collate() returns {shortened(repr(pair))}; it must return a pair (inputs, targets)")
        return pair[0], pair[1]
    return tuple(file.attempt("data", torch().utils.data.default_collate, samples))


def mapped(function: Callable[[Any], Any], values: Any) -> Any:
    """Applies a function to each tensor in nested tuples, lists and dictionaries."""
    if isinstance(values, Mapping):
        return {key: mapped(function, value) for key, value in values.items()}
    if isinstance(values, tuple | list):
        return type(values)(mapped(function, value) for value in values) if type(values) in (tuple, list) else values
    return function(values) if hasattr(values, "untyped_storage") else values


def bytes_of(tensor: Any) -> bytes:
    """Returns the numbers of a tensor, of whatever type, as bytes."""
    return tensor.detach().to_dense().contiguous().flatten().view(torch().uint8).numpy().tobytes()


def in_precision(values: Any, precision: str) -> Any:
    """Converts the floating-point numbers of a batch to the type of the parameters. No gradient goes into the data."""

    def converted(tensor: Any) -> Any:
        if not tensor.is_floating_point():
            return tensor
        return (tensor.double() if precision == "fp64" else tensor.float()).detach()

    return mapped(converted, values)

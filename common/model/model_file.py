"""The file of a model: its functions, how they are called, and what they may return.

A built-in model has a file for each framework in frameworks/shared/networks/; a user's file, in plain PyTorch, also says what data the
model trains on and how. A mistake in a file is a UserError, one line with the place in it. PyTorch is the file's import: nothing here
loads it.
"""

import ast
import contextlib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from common.bounds import FROM_1, NUMBER, POSITIVE, Bounds
from common.command_line import shortened
from common.errors import UserError

REQUIRED = {
    "model": "def model(): returns an nn.Module",
    "data": "def data(): returns a training and a held-out data set",
    "loss": "def loss(outputs, targets): returns the mean over the samples of a batch",
}
OPTIONAL = ("optimizer", "scheduler", "metric", "finish", "collate", "layers")
# The constants of a file: the type of each, its default, and the numbers that it takes.
CONSTANTS: dict[str, tuple[type, Any, Bounds | None]] = {
    "TARGET": (float, None, NUMBER),
    "BATCH_SIZE": (int, 32, FROM_1),
    "EPOCHS": (int, 10, FROM_1),
    "LEARNING_RATE": (float, None, POSITIVE),
    "CLIP_NORM": (float, None, POSITIVE),
    "LOWER_IS_BETTER": (bool, False, None),
    "FIND_UNUSED": (bool, False, None),
}
WORDS = {float: "a number", int: "a whole number", bool: "True or False"}
# The environment variables of this process before code of a file.
_variables: dict[str, str] = {}
KERAS_PACKAGES = {"keras", "tf_keras"}
OF_KERAS = (
    "the model is Keras's; backends on PyTorch take a file whose model() returns an nn.Module, "
    "and those on TensorFlow and Keras train Tandem's own workloads alone"
)


class ModelFile(NamedTuple):
    """A file that has been imported.

    `arguments` are those of model(). The digest is of the source of the file, and of the modules in its folder that it imports.
    """

    path: Path
    content: ModuleType
    arguments: dict[str, Any]
    digest: str

    def __hash__(self) -> int:
        return hash((self.path, self.digest))

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
            with variables_kept():
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


@contextlib.contextmanager
def variables_kept() -> Iterator[None]:
    """Restores the environment variables that code of a file has removed: libraries read those of the launcher later."""
    # A copy takes longer than some steps' loss().
    if len(os.environ) != len(_variables):
        _variables.clear()
        _variables.update(os.environ)
    try:
        yield
    finally:
        if len(os.environ) < len(_variables):
            os.environ |= _variables | os.environ


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


def located(source: str, workloads: Iterable[str] = ()) -> Path:
    """Returns the path of FILE or package.module, which is not imported. Raises UserError where there is none, with `workloads`."""
    path, (package, *names) = Path(source), source.split(".")
    if path.suffix != ".py" and "/" not in source:
        spec = importlib.util.find_spec(package) if package.isidentifier() else None
        stems = [Path(folder, *names) for folder in (spec and spec.submodule_search_locations) or ()]
        files = [file for stem in stems for file in (stem.with_name(f"{stem.name}.py"), stem / "__init__.py")]
        path = next((file for file in files if file.is_file()), Path(spec.origin) if spec and spec.origin and not names else path)
    if not path.is_file():
        raise UserError(
            f"there is no workload {source!r}; choose from: {', '.join(workloads)}, or give --model a Python file or package.module"
        )
    return path.resolve()


def read(source: str, arguments: str | None) -> ModelFile:
    """Imports a file and checks what it defines. Raises UserError for a mistake in it."""
    return _read(located(source), arguments)


@functools.cache
def _read(path: Path, arguments: str | None) -> ModelFile:
    file = ModelFile(path, ModuleType(path.stem), arguments_of(arguments), "")
    _import(file)
    file = file._replace(digest=_digest(file))
    for name, definition in REQUIRED.items():
        if not file.has(name):
            file.refuse(None, f"it has no {name}(); add {definition}")
    for name in (*REQUIRED, *OPTIONAL):
        if file.has(name) and not callable(getattr(file.content, name)):
            file.refuse(name, f"{name} is no function")
    for name, (kind, _, bounds) in CONSTANTS.items():
        value = file.constant(name)
        is_kind = isinstance(value, int | float if kind is float else kind) and (kind is bool or not isinstance(value, bool))
        problem = (bounds and bounds.problem(value)) if is_kind else f"it must be {WORDS[kind]}"
        if value is not None and problem:
            file.refuse(name, f"{name} is {shortened(repr(value))}; {problem}")
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


def of_module(name: str, **arguments: Any) -> ModelFile:
    """Returns the file of a module, which is imported, with these arguments of its model()."""
    content = importlib.import_module(name)
    return ModelFile(Path(str(content.__file__)), content, arguments, "")


def arguments_of(text: str | None) -> dict[str, Any]:
    try:
        arguments = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise UserError(f"""--model-args is {shortened(text or "")!r}; give a JSON object, such as '{{"width": 512}}'""")
    return arguments


def _import(file: ModelFile) -> None:
    """Runs the file as a module, of its package if it is in one, in its folder. Modules beside it can be imported."""
    root, package = _package_of(file.path)
    os.chdir(file.path.parent)
    sys.path[:0] = [str(file.path.parent), *([str(root)] if package else [])]
    file.content.__package__ = package or None
    file.content.__file__ = str(file.path)
    # Where dataclasses and pickle look a class of the file up.
    sys.modules.setdefault(file.name, file.content)
    try:
        with variables_kept():
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
    torch().set_default_dtype(torch().float32)


def _package_of(path: Path) -> tuple[Path, str]:
    """Returns the folder from which a file is imported, and the name of its package: "" where its folder is none."""
    folder, names = path.parent, []
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(names)


def _digest(file: ModelFile) -> str:
    """Returns the SHA-256 of the file and of the modules in its folder or package that it has imported, wherever they lie."""
    root, package = _package_of(file.path)
    folder, sha256 = root / package.partition(".")[0], hashlib.sha256(file.path.read_bytes())
    for name, module in sorted(sys.modules.items()):
        path = getattr(module, "__file__", None)
        # A Path of each of a library's thousands of modules would take seconds.
        if path and "site-packages" not in path and folder.name in path and Path(path) != file.path and Path(path).is_relative_to(folder):
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
        seed_generators(seed_of(*seeds))
        yield


def seed_of(*seeds: int) -> int:
    return int(np.random.SeedSequence(seeds).generate_state(1)[0])


def build(file: ModelFile, seed: int) -> Any:
    """Calls model(), under the seed. Raises UserError where it returns no nn.Module with parameters of floating-point numbers."""
    with generators_kept():
        seed_generators(seed)
        module = file.call("model", **file.arguments)
    # The run converts parameters and data to its --precision.
    torch().set_default_dtype(torch().float32)
    if not isinstance(module, torch().nn.Module):
        is_of_keras = any(base.__module__.partition(".")[0] in KERAS_PACKAGES for base in type(module).__mro__)
        file.refuse("model", OF_KERAS if is_of_keras else f"model() returns {type(module).__name__}; it must return an nn.Module")
    for layer in module.modules():
        if getattr(layer, "sparse", None) is True:
            # Dense gradients are the same, and every library averages them.
            layer.sparse = False
    parameters = dict(module.named_parameters())
    if not any(parameter.requires_grad for parameter in parameters.values()):
        file.refuse("model", "model() returns a module without parameters to train")
    for name, parameter in parameters.items():
        if torch().nn.parameter.is_lazy(parameter):
            file.refuse("model", f"model() returns {name} without a shape, as of a lazy layer; give the layer its number of inputs")
        if not parameter.numel():
            file.refuse("model", f"model() returns {name} of shape {tuple(parameter.shape)}, without a number; leave it out")
        if parameter.device.type != torch().get_default_device().type or not parameter.is_floating_point():
            file.refuse(
                "model", f"model() returns {name} of {parameter.dtype} on {parameter.device}; it must be floating point, on the CPU"
            )
    return module


def optimizer_of(file: ModelFile, named_parameters: Iterable[tuple[str, Any]]) -> Any:
    """Calls optimizer(), with names where its argument is called named_parameters. Raises UserError where it returns no optimizer.

    Where groups have different rates, each keeps its ratio to LEARNING_RATE, as its `rate_factor`; one rate for all is LEARNING_RATE.
    """
    named = list(named_parameters)
    takes_names = "named_parameters" in inspect.signature(file.content.optimizer).parameters
    optimizer = file.call("optimizer", iter(named) if takes_names else (parameter for _, parameter in named))
    if not isinstance(optimizer, torch().optim.Optimizer):
        remedy = "its groups of parameters may have an lr each, and a step has one loss"
        file.refuse("optimizer", f"optimizer() returns {type(optimizer).__name__}; it must return a torch.optim.Optimizer ({remedy})")
    if len({float(group["lr"]) for group in optimizer.param_groups}) > 1:
        for group in optimizer.param_groups:
            group["rate_factor"] = float(group["lr"]) / file.constant("LEARNING_RATE")
    return optimizer


def num_owners(module: Any) -> Counter[int]:
    """Returns how many modules have each parameter, by its id."""
    return Counter(id(parameter) for submodule in module.modules() for parameter in submodule.parameters(recurse=False))


def repeated_blocks(module: Any) -> list[Any]:
    """Returns the modules of several layers each that have one class and parameters of the same shapes: the blocks with most parameters.

    Blocks that share parameters with other modules are none, since whoever shards them would submodule these.
    """
    owners = num_owners(module)
    containers = (torch().nn.ModuleList, torch().nn.ModuleDict)
    blocks: dict[Any, list[Any]] = {}
    for submodule in module.modules():
        parameters = list(submodule.parameters())
        is_block = submodule is not module and not isinstance(submodule, containers) and any(True for _ in submodule.children())
        if is_block and parameters and all(owners[id(parameter)] == 1 for parameter in parameters):
            blocks.setdefault((type(submodule), *(tuple(parameter.shape) for parameter in parameters)), []).append(submodule)
    # A block that only wraps another one has its parameters.
    repeated = [parts for parts in blocks.values() if len(parts) > 1 and parts[1] not in list(parts[0].modules())]
    return max(repeated, key=lambda parts: len(parts) * sum(parameter.numel() for parameter in parts[0].parameters()), default=[])


def layers_of(file: ModelFile, module: Any) -> list[Any]:
    """Returns the layers of a module: those of the file's layers(), a list of modules by the name of layers or blocks, or repeated blocks.

    Raises UserError where layers() returns something else.
    """
    lists = (torch().nn.ModuleList, torch().nn.Sequential)
    if not file.has("layers"):
        named: list[Any] = [getattr(module, name, None) for name in ("layers", "blocks")]
        return next((list(layers) for layers in named if isinstance(layers, lists)), None) or repeated_blocks(module)
    layers = file.call("layers", module)
    is_list = isinstance(layers, (list, tuple, *lists)) and len(layers) > 0
    if not (is_list and set(map(id, layers)) <= set(map(id, module.modules())) - {id(module)}):
        file.refuse("layers", "layers() must return a list of modules inside of the model that it is given")
    return list(layers)

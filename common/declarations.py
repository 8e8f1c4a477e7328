"""The declaration of each backend, read from the backend's file without importing its library.

A backend is a file of frameworks/ and is named after it. Its own settings are declared there too, and become those of common/config.py.
"""

import ast
import os
import shlex
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from common.bounds import FROM_0, FROM_1, RANKS, Bounds
from common.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
# The environment's, by its path from there, as commands are printed; without an environment the one that this program runs in.
PYTHON = ".venv/bin/python" if os.path.exists(ROOT / ".venv/bin/python") else sys.executable
# As commands that are printed have it.
SHELL_PYTHON = shlex.quote(PYTHON)
FOLDER = ROOT / "frameworks"
# Plain single-process training, the reference of every speed-up.
BASELINE = "single"
# The library of a backend that needs none.
ALONE = "none"
# The framework by which another one computes.
COMPUTES_BY = {"Keras": "TensorFlow"}


class Setting(NamedTuple):
    """A setting of a backend. Where several have one of a name, each declares what it takes, with the same default.

    Its type is that of its default; without one that of `choices`, or a path. Each choice but the default selects a variant of the backend.
    `is_compared`: whether runs of the backend that are compared have equal values.
    """

    name: str
    help: str
    default: str | float | bool | None = None
    choices: tuple[str | int, ...] = ()
    bounds: Bounds | None = None
    is_path: bool = False
    is_compared: bool = True

    @property
    def variants(self) -> tuple[str | int, ...]:
        return tuple(choice for choice in self.choices if choice != self.default)


class Backend(NamedTuple):
    """The declaration in a backend's file, `BACKEND = Backend(…)` of what NAMES has and literal values.

    A variant is named by its value as a text; "" is the default variant.
    """

    # What it is

    change: str | None = None
    """The change that it needs in a program for one process, in a few words."""
    framework: str = "PyTorch"
    """The framework that computes."""
    library: str | None = None
    """The library that it shares with backends on other frameworks, such as Horovod, or `none`; None: it shares none."""
    by_default: bool = True
    """Whether the default matrix has it."""
    settings: tuple[Setting, ...] = ()
    """The settings that it has and others do not. Those with choices select variants."""
    transport: str | None = None
    """What the gradients go over on CPUs, where variants go over another."""
    library_settings: Mapping[str, tuple[float | bool, ...]] = MappingProxyType({})
    """Settings of its library, with values other than the default, that a search of the best tries."""

    # What trains

    approximate: bool | tuple[str, ...] = False
    """Whether it trains otherwise than plain PyTorch does, by more than rounding; or the variants that do."""
    float32_masters: bool = False
    """Whether master parameters are float32, also in a float64 run."""
    can_share_gpu: bool = False
    """Whether it supports --share-gpu."""
    models: tuple[str, ...] = ()
    """The models of common/model/description.py that it trains; empty: all."""
    same_parameters: tuple[str, ...] = ()
    """The variants whose ranks must use the same parameters in a step."""
    untied: bool = False
    """Whether it trains no model whose embedding is its head's weight too."""

    # Its ranks

    needs_mpi: bool = False
    """Whether an MPI launcher must start the ranks, whatever the transport."""
    one_rank: bool = False
    """Whether one process trains; a matrix then runs it at size 1 whatever its sizes."""
    num_servers: int = 0
    """How many of the ranks, the last ones, train no shard."""
    model_parallel: str = ""
    """How many ranks compute one model together: `all`, or the setting that has their number; empty: each has its own."""
    divides: str = ""
    """The size of a model that these ranks divide among them, such as `num_heads`."""
    pipelined: bool = False
    """Whether these ranks compute stages of the model."""

    # Its memory and communication

    sharing: str | Mapping[str, str] | None = None
    """Its strategy, a name in STRATEGIES of common/cost/sharing.py, or {variant: name}; None: there is no formula for it."""
    deals: bool = False
    """Whether a rank's share of what is sharded is whole tensors."""
    buffers: str | None = None
    """Its buffers for the exchange, as launch/memory.py names them; None: it has none."""

    @property
    def variants(self) -> dict[str, tuple[str | int, ...]]:
        """Returns the settings that select variants, and their values that do."""
        return {setting.name: setting.variants for setting in self.settings if setting.choices}


# What a declaration may be made of, beside literals.
NAMES = {"Backend": Backend, "Setting": Setting, "Bounds": Bounds, "FROM_0": FROM_0, "FROM_1": FROM_1, "RANKS": RANKS}


@cache
def declared(folder: Path = FOLDER) -> dict[str, Backend]:
    """Returns the declaration of every backend by name, the baseline first. Raises UserError for a file without a readable declaration."""
    names = sorted((path.stem for path in folder.glob("[!._]*.py")), key=lambda name: (name != BASELINE, name))
    return {name: _read(folder / f"{name}.py") for name in names}


def _read(path: Path) -> Backend:
    """Returns the Backend that a file declares. Raises UserError if there is none or it cannot be read without the file's imports."""
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["BACKEND"]:
            try:
                return eval(compile(ast.Expression(node.value), str(path), "eval"), {"__builtins__": {}}, NAMES)
            except (AttributeError, NameError, TypeError, ValueError) as problem:
                raise UserError(f"{path}, line {node.lineno}: BACKEND cannot be read ({problem}); write Backend(NAME=LITERAL, …)") from None
    raise UserError(f"{path} declares no BACKEND; see common/declarations.py")


@cache
def own_settings() -> dict[str, dict[str, Setting]]:
    """Returns by name the settings that not all backends have, each by the backends that declare it."""
    settings: dict[str, dict[str, Setting]] = {}
    for backend, declaration in declared().items():
        for setting in declaration.settings:
            settings.setdefault(setting.name, {})[backend] = setting
    return settings

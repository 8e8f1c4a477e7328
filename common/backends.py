"""The declaration of each backend, read from the backend's file without importing its library.

A backend is a file of frameworks/ and is named after it. A variant is written BACKEND@VALUE; the default variant is BACKEND.
"""

import ast
import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from common.command_line import flag, names_in
from common.config import Settings
from common.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "frameworks"
# Plain single-process training, the reference of every speed-up.
BASELINE = "single"
ALL = "all"
# The library of a backend that needs none.
ALONE = "none"


class Backend(NamedTuple):
    """The declaration in a backend's file, `BACKEND = Backend(…)` with literal values.

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
    variants: Mapping[str, tuple[str | int, ...]] = MappingProxyType({})
    """The settings of common/config.py that select variants, and their values that do."""
    transport: str | None = None
    """What the gradients go over on CPUs, where variants go over another."""

    # What trains

    approximate: bool | tuple[str, ...] = False
    """Whether it trains otherwise than plain PyTorch does, by more than rounding; or the variants that do."""
    float32_masters: bool = False
    """Whether master parameters are float32, also in a float64 run."""
    can_compile: bool | tuple[str, ...] = False
    """Whether it supports --compile; or the variants that do."""
    can_share_gpu: bool = False
    """Whether it supports --share-gpu."""
    models: tuple[str, ...] = ()
    """The models of common/model/families.py that it trains; empty: all."""
    untied: bool = False
    """Whether it trains no model whose embedding is its head's weight too."""

    # Its ranks

    needs_mpi: bool = False
    """Whether an MPI launcher must start the ranks, whatever the transport."""
    one_rank: bool = False
    """Whether one process trains; a matrix then runs it at size 1 whatever its sizes."""
    num_servers: int = 0
    """How many of the ranks, the last ones, train no shard."""
    multiple_of: Mapping[str, int] = MappingProxyType({})
    """The number whose multiple the ranks of a single node must be, by variant. Several nodes then have the same number of ranks each."""
    power_of_two: tuple[str, ...] = ()
    """The variants whose number of ranks must be a power of 2."""
    model_parallel: str = ""
    """How many ranks compute one model together: `all`, or the setting that has their number; empty: each has its own."""
    divides: str = ""
    """The size of a model that these ranks divide among them, such as `num_heads`."""
    pipelined: bool = False
    """Whether these ranks compute stages of the model."""

    # Its memory and communication

    sharing: str | Mapping[str, str | None] | None = None
    """Its way of sharing the training, a name in WAYS of common/cost/sharing.py, or {variant: name}; None: there is no formula for it."""
    deals: bool = False
    """Whether a rank's share of what is sharded is whole tensors."""
    buffers: str | None = None
    """Its buffers for the exchange, a name in BUFFERS of common/cost/communication_buffers.py; None: it has none."""
    offloads: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """By each name in OFFLOADS of common/cost/memory_forecast.py the variants whose library can keep that in main memory."""


@cache
def declared(folder: Path = FOLDER) -> dict[str, Backend]:
    """Returns the declaration of every backend by name, the baseline first. Raises UserError for a file without a readable declaration."""
    names = sorted((path.stem for path in folder.glob("[!._]*.py")), key=lambda name: (name != BASELINE, name))
    return {name: _read(folder / f"{name}.py") for name in names}


def _read(path: Path) -> Backend:
    """Returns the Backend that a file declares. Raises UserError if there is none or its values are not literals."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["BACKEND"]:
            try:
                keywords = node.value.keywords if isinstance(node.value, ast.Call) else [ast.keyword(None, node.value)]
                return Backend(**{str(keyword.arg): ast.literal_eval(keyword.value) for keyword in keywords})
            except (TypeError, ValueError) as problem:
                raise UserError(f"{path}, line {node.lineno}: BACKEND cannot be read ({problem}); write Backend(NAME=LITERAL, …)") from None
    raise UserError(f"{path} declares no BACKEND; see common/backends.py")


def declaration_of(name: str) -> Backend:
    """Returns the declaration of a backend, or of a variant's. A file outside frameworks/ may run as a backend; it declares nothing."""
    return declared().get(file_of(name), Backend())


def chosen(text: str | None) -> list[str]:
    """Returns the backends in a comma-separated list, every one for "all", those of the default matrix for None.

    Raises UserError for an unknown one.
    """
    if text is None or text == ALL:
        return [name for name, declaration in declared().items() if declaration.by_default or text == ALL]
    names = names_in(text)
    for name in names:
        if file_of(name) not in declared():
            raise UserError(f"there is no backend {name!r}; choose from: {', '.join(declared())}, or {ALL}")
    return [name_of(file_of(name), settings_of(name, Settings())) for name in names]


def variant_settings() -> set[str]:
    """Returns the settings whose values select variants."""
    return {setting for declaration in declared().values() for setting in declaration.variants}


def variants_by(setting: str) -> list[str]:
    """Returns the names of the variants that a setting selects."""
    return [f"{name}@{value}" for name, declaration in declared().items() for value in declaration.variants.get(setting, ())]


def file_of(name: str) -> str:
    """Returns the name of the backend's file: the name without the variant."""
    return name.partition("@")[0]


def needs_mpi(name: str) -> bool:
    """Whether a backend, or a variant of one, needs an MPI launcher."""
    return declaration_of(name).needs_mpi or settings_of(name, Settings()).transport == "mpi"


def has_one_rank(name: str) -> bool:
    """Whether a backend trains in one process."""
    return declaration_of(name).one_rank


def is_exact(name: str) -> bool:
    """Whether a backend, or a variant of one, trains as plain PyTorch does up to rounding."""
    return not _applies(declaration_of(name).approximate, name)


def name_of(backend: str, settings: Settings) -> str:
    """Returns a backend's name, including its variant, under these settings. Raises UserError for a setting or value of another backend."""
    # A file outside frameworks/ may compile.
    declaration = declared().get(backend, Backend(can_compile=True))
    changed = {name: value for name in sorted(variant_settings()) if (value := getattr(settings, name)) != getattr(Settings(), name)}
    for setting, value in changed.items():
        if setting not in declaration.variants:
            raise UserError(f"{flag(setting)} is for {', '.join(_backends_with('variants', setting))}, not for {backend}; leave it out")
        if value not in declaration.variants[setting]:
            raise UserError(_no_variant(backend, value))
    if len(changed) > 1:
        raise UserError(f"{backend} takes one of {' and '.join(map(flag, changed))}; leave the others out")
    name = "@".join((backend, *map(str, changed.values())))
    if settings.compile and not _applies(declaration.can_compile, name):
        if isinstance(declaration.can_compile, tuple):
            able = ", ".join(f"{backend}@{variant}".rstrip("@") for variant in declaration.can_compile)
            raise UserError(f"--compile is not for {name}; use {able}")
        able = ",".join(_backends_with("can_compile"))
        raise UserError(f"--compile is not for {name}; leave it out, or in a matrix choose --backends {able}")
    if settings.share_gpu and not declaration.can_share_gpu:
        raise UserError(f"--share-gpu is not for {name}; leave it out, or choose from: {', '.join(_backends_with('can_share_gpu'))}")
    return name


def _backends_with(field: str, item: str | None = None) -> list[str]:
    """Returns the backends whose declaration has a value in the field, or has the item among its values."""
    values = {name: getattr(declaration, field) for name, declaration in declared().items()}
    return [name for name, value in values.items() if (value if item is None else item in value)]


def settings_of(name: str, settings: Settings) -> Settings:
    """Returns the settings with the variant of a backend's name applied. Raises UserError for an unknown variant."""
    backend, at, variant = name.partition("@")
    if not at:
        return settings
    if variant not in (settings_by_variant := _variants(backend)):
        raise UserError(_no_variant(backend, variant))
    setting, value = settings_by_variant[variant]
    return dataclasses.replace(settings, **{setting: value})


def variants_of(backend: str) -> list[str]:
    """Returns the names of a backend's variants."""
    return [f"{backend}@{variant}" for variant in _variants(backend)]


def _variants(backend: str) -> dict[str, tuple[str, str | int]]:
    """Returns the setting and the value by which each variant of a backend is selected."""
    return {str(value): (setting, value) for setting, values in declaration_of(backend).variants.items() for value in values}


def _no_variant(backend: str, variant: str | int) -> str:
    """Returns the message that a backend has no such variant, and what it has."""
    declaration = declaration_of(backend)
    if str(variant) in (declaration.transport, *(str(getattr(Settings, setting)) for setting in declaration.variants)):
        return f"{backend}@{variant} is {backend} itself; leave {variant} out"
    if not declaration.variants:
        return f"{backend} has no variants; write it without @{variant}"
    return f"there is no {backend}@{variant}; choose from: {', '.join(variants_of(backend))}, or {backend} alone"


def _applies(variants: bool | tuple[str, ...], name: str) -> bool:
    """Whether a field that is a bool, or lists variants, applies to a backend, or a variant of one."""
    return variants if isinstance(variants, bool) else name.partition("@")[2] in variants

"""The declaration of each backend, read from the backend's file without importing its library.

A backend is a file of frameworks/ and is named after it. A variant is written BACKEND@VALUE; the default variant is BACKEND.
"""

import ast
import dataclasses
from collections import ChainMap
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from common.command_line import flag, names_in
from common.config import NO_SETTING, Settings
from common.errors import UserError

Value = TypeVar("Value")
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
    combined: tuple[str, ...] = ()
    """Variants of several settings: their values, joined by +."""
    transport: str | None = None
    """What the gradients go over on CPUs, where variants go over another."""
    library_settings: Mapping[str, tuple[float | bool, ...]] = MappingProxyType({})
    """Settings of its library, with values other than the default, that a search of the best tries."""
    takes: tuple[str, ...] = ()
    """The settings of common/config.py that it takes and others do not, beside those that select its variants."""

    # What trains

    approximate: bool | tuple[str, ...] = False
    """Whether it trains otherwise than plain PyTorch does, by more than rounding; or the variants that do."""
    float32_masters: bool = False
    """Whether master parameters are float32, also in a float64 run."""
    precisions: Mapping[str, str] = MappingProxyType({})
    """By variant the name in PRECISIONS of common/cost/sharing.py of the numbers that it holds, where these are not of --precision."""
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
    for node in ast.parse(path.read_bytes()).body:
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


def given_of_some(settings: Settings) -> list[str]:
    """Returns the settings, of those that only some backends take, that do not have their defaults."""
    of_some = sorted({setting for declaration in declared().values() for setting in declaration.takes})
    return [name for name in of_some if getattr(settings, name) != getattr(Settings, name)]


def without_untaken(name: str, settings: Settings) -> Settings:
    """Returns the settings without those that other backends take, and this one does not."""
    untaken = [setting for setting in given_of_some(settings) if setting not in declaration_of(name).takes]
    return dataclasses.replace(settings, **{setting: getattr(Settings, setting) for setting in untaken})


def expect_taken(names: Iterable[str], settings: Settings) -> None:
    """Raises UserError for a setting that none of these backends takes."""
    taken = {setting for name in names for setting in declaration_of(name).takes}
    for setting in given_of_some(settings):
        if setting not in taken:
            raise UserError(f"{_is_for(setting)}, and --backends has none of these; leave it out")


def needs_mpi(name: str) -> bool:
    """Returns whether a backend, or a variant of one, needs an MPI launcher."""
    return declaration_of(name).needs_mpi or settings_of(name, Settings()).transport == "mpi"


def has_one_rank(name: str) -> bool:
    """Returns whether a backend trains in one process."""
    return declaration_of(name).one_rank


def is_exact(name: str) -> bool:
    """Returns whether a backend, or a variant of one, trains as plain PyTorch does up to rounding."""
    return not _applies(declaration_of(name).approximate, name)


def name_of(backend: str, settings: Settings) -> str:
    """Returns a backend's name, including its variant, under these settings. Raises UserError for a setting or value of another backend."""
    # A file outside frameworks/ may compile.
    declaration = declared().get(backend, Backend(can_compile=True))
    for setting in given_of_some(settings):
        if setting not in declaration.takes:
            raise UserError(f"{_is_for(setting)}, not for {backend}; leave it out")
    changed = {name: value for name in sorted(variant_settings()) if (value := getattr(settings, name)) != getattr(Settings(), name)}
    for setting, value in changed.items():
        if setting not in declaration.variants:
            raise UserError(f"{flag(setting)} is for {', '.join(_backends_with('variants', setting))}, not for {backend}; leave it out")
        if value not in declaration.variants[setting]:
            raise UserError(_no_variant(backend, value))
    variant = "+".join(str(changed[setting]) for setting in declaration.variants if setting in changed)
    if len(changed) > 1 and variant not in declaration.combined:
        raise UserError(f"{backend} takes one of {' and '.join(map(flag, changed))}; leave the others out")
    name = f"{backend}@{variant}" if variant else backend
    if settings.compile and not _applies(declaration.can_compile, name):
        if isinstance(declaration.can_compile, tuple):
            able = ", ".join(f"{backend}@{variant}".rstrip("@") for variant in declaration.can_compile)
            raise UserError(f"--compile is not for {name}; use {able}")
        able = ",".join(_backends_with("can_compile"))
        raise UserError(f"--compile is not for {name}; leave it out, or in a matrix choose --backends {able}")
    if (setting := settings.library_setting) not in (None, NO_SETTING, *(able := settings_of_library(backend))):
        raise UserError(f"--library-setting {setting} is not for {name}; choose from: {', '.join((NO_SETTING, *able))}")
    if settings.share_gpu and not declaration.can_share_gpu:
        raise UserError(f"--share-gpu is not for {name}; leave it out, or choose from: {', '.join(_backends_with('can_share_gpu'))}")
    return name


def _is_for(setting: str) -> str:
    return f"{flag(setting)} is for {', '.join(_backends_with('takes', setting))}"


def settings_of_library(name: str) -> list[str]:
    """Returns the settings of its library that a search tries for a backend, or a variant, each as NAME=VALUE."""
    return [f"{setting}={value}" for setting, values in declaration_of(name).library_settings.items() for value in values]


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
    return dataclasses.replace(settings, **settings_by_variant[variant])


def variants_of(backend: str) -> list[str]:
    """Returns the names of a backend's variants."""
    return [f"{backend}@{variant}" for variant in _variants(backend)]


def _variants(backend: str) -> dict[str, dict[str, Any]]:
    """Returns the settings, with their values, by which each variant of a backend is selected."""
    declaration = declaration_of(backend)
    of_one = {str(value): {setting: value} for setting, values in declaration.variants.items() for value in values}
    return of_one | {name: dict(ChainMap(*(of_one[value] for value in name.split("+")))) for name in declaration.combined}


def _no_variant(backend: str, variant: str | int) -> str:
    """Returns the message that a backend has no such variant, and what it has."""
    declaration = declaration_of(backend)
    if str(variant) in (declaration.transport, *(str(getattr(Settings, setting)) for setting in declaration.variants)):
        return f"{backend}@{variant} is {backend} itself; leave {variant} out"
    if not declaration.variants:
        return f"{backend} has no variants; write it without @{variant}"
    return f"there is no {backend}@{variant}; choose from: {', '.join(variants_of(backend))}, or {backend} alone"


def by_variant(values: Mapping[str, Value], name: str) -> Value | None:
    """Returns the value of a backend's variant among values by variant: that of its name, of one of its settings, or of the default."""
    variant = name.partition("@")[2]
    return next((values[key] for key in (variant, *variant.split("+"), "") if key in values), None)


def _applies(variants: bool | tuple[str, ...], name: str) -> bool:
    """Returns whether a field that is a bool, or lists variants, applies to a backend, or a variant of one."""
    return variants if isinstance(variants, bool) else name.partition("@")[2] in variants

"""The declaration of each backend, read from the backend's file without importing its library.

A backend is a file of frameworks/ and is named after it. A variant is written BACKEND@VALUE; the default variant is BACKEND.
"""

import ast
import dataclasses
from functools import cache
from pathlib import Path
from typing import NamedTuple

from common.command_line import flag
from common.config import Settings
from common.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "frameworks"
# Plain single-process training, the reference of every speed-up.
BASELINE = "single"
ALL = "all"


class Backend(NamedTuple):
    """The declaration in a backend's file, `BACKEND = Backend(…)` with literal values.

    `variant_setting`: the setting of common/config.py whose value selects a variant. `variants`: the values that it may have.
    `transport`: what the gradients go over on CPUs where variants go over another. `needs_mpi`: an MPI launcher must start the ranks,
    whatever the transport. `can_compile`: supports --compile, with all variants or with the listed values. `exact`: same mathematics
    as plain PyTorch, likewise. `float32_masters`: master parameters are float32, also in a float64 run. `by_default`: the default
    matrix has it. `multiple_of`: (variant, what its number of ranks must be a multiple of) of each variant that does not take any.
    """

    variant_setting: str | None = None
    variants: tuple = ()
    transport: str | None = None
    needs_mpi: bool = False
    can_compile: bool | tuple = False
    exact: bool | tuple = True
    float32_masters: bool = False
    by_default: bool = True
    multiple_of: tuple = ()


@cache
def declared(folder=FOLDER):
    """{name: Backend} of every backend, the baseline first. Raises UserError for a file without a readable declaration."""
    found = {path.stem: declaration(path) for path in folder.glob("*.py") if path.stem != "__init__"}
    return dict(sorted(found.items(), key=lambda item: (item[0] != BASELINE, item[0])))


def declaration(path):
    """The Backend that a file declares. Raises UserError if there is none or its values are not literals."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["BACKEND"]:
            try:
                return Backend(**{keyword.arg: ast.literal_eval(keyword.value) for keyword in node.value.keywords})
            except (TypeError, ValueError, AttributeError) as problem:
                raise UserError(f"{path}, line {node.lineno}: BACKEND cannot be read ({problem}); write Backend(NAME=LITERAL, …)") from None
    raise UserError(f"{path} declares no BACKEND; see common/backends.py")


def chosen(text):
    """The backends in a comma-separated list, every one for "all", those of the default matrix for None.

    Raises UserError for an unknown one.
    """
    if text is None or text == ALL:
        return [name for name, one in declared().items() if one.by_default or text == ALL]
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if file_of(name) not in declared():
            raise UserError(f"there is no backend {name!r}; choose from: {', '.join(declared())}, or {ALL}")
    return [name_of(file_of(name), settings_of(name, Settings())) for name in names]


def variant_settings():
    """The settings whose values select variants."""
    return {backend.variant_setting for backend in declared().values() if backend.variant_setting}


def with_variant(setting, value):
    """The names of the variants that have this value of a setting."""
    return [f"{name}@{value}" for name, one in declared().items() if one.variant_setting == setting and value in one.variants]


def file_of(name):
    """The name of the backend's file: the name without the variant."""
    return name.partition("@")[0]


def needs_mpi(name):
    """Whether a backend, or a variant of one, needs an MPI launcher."""
    return declared()[file_of(name)].needs_mpi or settings_of(name, Settings()).transport == "mpi"


def is_exact(name):
    """Whether a backend, or a variant of one, has the same mathematics as plain PyTorch."""
    return file_of(name) not in declared() or _applies(declared()[file_of(name)], "exact", settings_of(name, Settings()))


def name_of(backend, settings):
    """A backend's name, including its variant, under these settings. Raises UserError for a setting or value of another backend."""
    # A file outside frameworks/ may run as a backend; its declaration is unknown.
    own = declared().get(backend, Backend(can_compile=True))
    if settings.compile:
        expect_compiled(backend, own, settings)
    for setting in variant_settings():
        value = getattr(settings, setting)
        if value == getattr(Settings(), setting):
            continue
        if setting != own.variant_setting:
            owners = [name for name, other in declared().items() if other.variant_setting == setting]
            raise UserError(f"{flag(setting)} is for {', '.join(owners)}, not for {backend}; leave it out")
        if value not in own.variants:
            raise UserError(no_variant(backend, value))
        return f"{backend}@{value}"
    return backend


def expect_compiled(backend, own, settings):
    """Raises UserError for a backend or variant that does not support --compile; `own` is the backend's declaration."""
    if _applies(own, "can_compile", settings):
        return
    if not own.can_compile:
        able = [name for name, other in declared().items() if other.can_compile]
        raise UserError(f"--compile is not for {backend}; leave it out, or in a matrix choose --backends {','.join(able)}")
    able = [f"{backend}@{one}" for one in own.can_compile]
    raise UserError(f"--compile is not for {backend}@{getattr(settings, own.variant_setting)}; use {', '.join(able)}")


def expect_ranks(name, num_ranks):
    """Raises UserError for a number of ranks at which a backend, or a variant, cannot train."""
    backend, _, variant = name.partition("@")
    multiple = dict(declared()[backend].multiple_of).get(variant, 1) if backend in declared() else 1
    if num_ranks % multiple:
        raise UserError(f"{name} takes a multiple of {multiple} ranks, and {num_ranks} is none; choose other sizes, or leave it out")


def settings_of(name, settings):
    """The settings with the variant of a backend's name applied. Raises UserError for an unknown variant."""
    backend, at, value = name.partition("@")
    if not at:
        return settings
    own = declared()[backend]
    chosen = next((one for one in own.variants if str(one) == value), None)
    if chosen is None:
        raise UserError(no_variant(backend, value))
    return dataclasses.replace(settings, **{own.variant_setting: chosen})


def no_variant(backend, value):
    """The message that a backend has no such variant, and what it has."""
    own = declared()[backend]
    if value == own.transport:
        return f"{backend}@{value} is {backend} itself; leave {value} out"
    if not own.variants:
        return f"{backend} has no variants; write it without @{value}"
    return f"there is no {backend}@{value}; choose from: {', '.join(f'{backend}@{one}' for one in own.variants)}, or {backend} alone"


def _applies(declaration, field, settings):
    """Whether a field that is a bool, or lists values of the variant's setting, applies under these settings."""
    of = getattr(declaration, field)
    return of if isinstance(of, bool) else getattr(settings, declaration.variant_setting) in of

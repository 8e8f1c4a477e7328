"""The declaration of each backend, read from the backend's file without importing its library.

A backend is a file of frameworks/ and is named after it. A variant is written BACKEND@VALUE; the default variant is BACKEND.
"""

import ast
import dataclasses
from functools import cache
from pathlib import Path
from typing import NamedTuple, get_args

from common.command_line import flag
from common.config import Settings
from common.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "frameworks"
# Plain single-process training, the reference of every speed-up.
BASELINE = "single"


class Backend(NamedTuple):
    """The declaration in a backend's file, `BACKEND = Backend(…)` with literal values.

    `variant_setting`: the setting of common/config.py whose value selects a variant; it applies to this backend only.
    `needs_mpi`: an MPI launcher must start the ranks. `can_compile`: supports --compile, for all variants or for the
    listed values. `exact`: same mathematics as plain PyTorch. `float32_masters`: master parameters are float32, also
    in a float64 run.
    """

    variant_setting: str | None = None
    needs_mpi: bool = False
    can_compile: bool | tuple = False
    exact: bool = True
    float32_masters: bool = False


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
    """The backends in a comma-separated list; all backends for None. Raises UserError for an unknown one."""
    names = list(declared()) if text is None else [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if file_of(name) not in declared():
            raise UserError(f"there is no backend {name!r}; choose from: {', '.join(declared())}")
    return [name_of(file_of(name), settings_of(name, Settings())) for name in names]


def variant_settings():
    """{backend: variant_setting} of the backends that have variants."""
    return {name: backend.variant_setting for name, backend in declared().items() if backend.variant_setting}


def file_of(name):
    """The name of the backend's file: the name without the variant."""
    return name.partition("@")[0]


def name_of(backend, settings):
    """A backend's name, including its variant, under these settings. Raises UserError for a setting of another backend."""
    if settings.compile:
        expect_compiled(backend, settings)
    for owner, setting in variant_settings().items():
        value = getattr(settings, setting)
        if value != getattr(Settings(), setting):
            if owner != backend:
                raise UserError(f"{flag(setting)} is for {owner}, not for {backend}; leave it out")
            return f"{backend}@{value}"
    return backend


def expect_compiled(backend, settings):
    """Raises UserError for a backend or variant that does not support --compile."""
    # A file outside frameworks/ may run as a backend; its declaration is unknown.
    declaration = declared().get(backend, Backend(can_compile=True))
    if declaration.can_compile is True:
        return
    if not declaration.can_compile:
        able = [name for name, other in declared().items() if other.can_compile]
        raise UserError(f"--compile is for PyTorch, not for {backend}; leave it out, or in a matrix choose --backends {','.join(able)}")
    value = getattr(settings, declaration.variant_setting)
    if value not in declaration.can_compile:
        able = [f"{backend}@{one}" for one in declaration.can_compile]
        raise UserError(f"--compile is not for {backend}@{value}; use {', '.join(able)}")


def settings_of(name, settings):
    """The settings with the variant of a backend's name applied. Raises UserError for an unknown variant."""
    backend, at, value = name.partition("@")
    if not at:
        return settings
    setting = variant_settings().get(backend)
    if setting is None:
        raise UserError(f"{backend} has no variants; write it without @{value}")
    possible = get_args(next(field.type for field in dataclasses.fields(Settings) if field.name == setting))
    chosen = next((one for one in possible if str(one) == value), None)
    if chosen is None:
        raise UserError(f"there is no {name}; choose from: {', '.join(f'{backend}@{one}' for one in possible)}")
    return dataclasses.replace(settings, **{setting: chosen})

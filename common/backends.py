"""The names of backends and of their variants, and which settings they take.

A variant is written BACKEND@VALUE; the default variant is BACKEND.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

from common.command_line import flag, names_in
from common.config import NO_SETTING, Settings
from common.declarations import Backend, declared, own_settings
from common.errors import UserError

ALL = "all"


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
    """Returns the settings that only some backends have, but those that select variants, that do not have their defaults."""
    return [name for name in own_settings().keys() - variant_settings() if getattr(settings, name) != getattr(Settings, name)]


def without_others(name: str, settings: Settings) -> Settings:
    """Returns the settings without those that other backends have, and this one does not."""
    foreign = [setting for setting in given_of_some(settings) if file_of(name) not in own_settings()[setting]]
    return dataclasses.replace(settings, **{setting: getattr(Settings, setting) for setting in foreign})


def expect_had(names: Iterable[str], settings: Settings) -> None:
    """Raises UserError for a setting that none of these backends has."""
    files = {file_of(name) for name in names}
    for setting in given_of_some(settings):
        if not files & own_settings()[setting].keys():
            raise UserError(f"{flag(setting)} {_is_for(setting)}, and --backends has none of these; leave it out")


def settings_of_others(backend: str) -> dict[str, str]:
    """Returns the settings that other backends have, and this one does not, each with the message about that."""
    foreign = [name for name, by_backend in own_settings().items() if backend not in by_backend]
    return {name: f"{_is_for(name)}, not for {backend}; leave it out" for name in foreign}


def needs_mpi(name: str) -> bool:
    """Returns whether a backend, or a variant of one, needs an MPI launcher."""
    return declaration_of(name).needs_mpi or settings_of(name, Settings()).transport == "mpi"


def has_one_rank(name: str) -> bool:
    """Returns whether a backend trains in one process."""
    return declaration_of(name).one_rank


def is_exact(name: str) -> bool:
    """Returns whether a backend, or a variant of one, trains as plain PyTorch does up to rounding."""
    approximate = declaration_of(name).approximate
    return not approximate if isinstance(approximate, bool) else name.partition("@")[2] not in approximate


def name_of(backend: str, settings: Settings) -> str:
    """Returns a backend's name, including its variant, under these settings. Raises UserError for a setting or value of another backend."""
    # A file outside frameworks/ declares nothing.
    declaration, of_others = declaration_of(backend), settings_of_others(backend)
    not_default = {name: value for name in sorted(own_settings()) if (value := getattr(settings, name)) != getattr(Settings, name)}
    for setting in not_default:
        if setting in of_others:
            raise UserError(f"{flag(setting)} {of_others[setting]}")
    changed = {name: value for name, value in not_default.items() if name in declaration.variants}
    for setting, value in changed.items():
        if value not in declaration.variants[setting]:
            raise UserError(_no_variant(backend, value))
    if len(changed) > 1:
        raise UserError(f"{backend} takes one of {' and '.join(map(flag, changed))}; leave the others out")
    name = "@".join([backend, *map(str, changed.values())])
    if (setting := settings.library_setting) not in (None, NO_SETTING, *(able := settings_of_library(backend))):
        raise UserError(f"--library-setting {setting} is not for {name}; choose from: {', '.join((NO_SETTING, *able))}")
    if settings.share_gpu and not declaration.can_share_gpu:
        able = ", ".join(name for name, declaration in declared().items() if declaration.can_share_gpu)
        raise UserError(f"--share-gpu is not for {name}; leave it out, or choose from: {able}")
    return name


def _is_for(setting: str) -> str:
    return f"is for {', '.join(own_settings()[setting])}"


def settings_of_library(name: str) -> list[str]:
    """Returns the settings of its library that a search tries for a backend, or a variant, each as NAME=VALUE."""
    return [f"{setting}={value}" for setting, values in declaration_of(name).library_settings.items() for value in values]


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
    """Returns the setting, with its value, by which each variant of a backend is selected."""
    return {str(value): {setting: value} for setting, values in declaration_of(backend).variants.items() for value in values}


def _no_variant(backend: str, variant: str | int) -> str:
    """Returns the message that a backend has no such variant, and what it has."""
    declaration = declaration_of(backend)
    if str(variant) in (declaration.transport, *(str(getattr(Settings, setting)) for setting in declaration.variants)):
        return f"{backend}@{variant} is {backend} itself; leave {variant} out"
    if not declaration.variants:
        return f"{backend} has no variants; write it without @{variant}"
    return f"there is no {backend}@{variant}; choose from: {', '.join(variants_of(backend))}, or {backend} alone"

"""Variants of a backend: one file, and the setting that tells them apart; written BACKEND@VALUE where it is not the default.

And which backends can be compiled.
"""

import dataclasses
from typing import get_args

from common.config import Settings, flag
from common.errors import UserError

# Settings that one backend alone knows.
VARIANTS = {"deepspeed_zero": "zero_stage"}
# Those on PyTorch.
COMPILED = ("single", "ddp", "horovod_torch", "deepspeed_zero")


def file_of(name):
    """The backend's file, without the variant."""
    return name.partition("@")[0]


def name_of(backend, settings):
    """A backend's name under these settings. Raises UserError for a setting that belongs to another backend."""
    if settings.compile:
        expect_compiled(backend, settings)
    for owner, setting in VARIANTS.items():
        value = getattr(settings, setting)
        if value != getattr(Settings(), setting):
            if owner != backend:
                raise UserError(f"{flag(setting)} is for {owner}, not for {backend}; leave it out")
            return f"{backend}@{value}"
    return backend


def expect_compiled(backend, settings):
    """Raises UserError for a backend that --compile is not for."""
    if backend not in COMPILED:
        raise UserError(f"--compile is for PyTorch, not for {backend}; leave it out, or in a matrix choose --backends {','.join(COMPILED)}")
    if settings.zero_stage == 3:
        # What gathers the parameters runs between the layers, in Python, and leaves nothing but pieces to compile.
        raise UserError("--compile is not for ZeRO's stage 3, which gathers parameters between the layers; use stage 0, 1 or 2")


def settings_of(name, settings):
    """The settings with the value that a backend's name asks for. Raises UserError for a value that there is not."""
    backend, at, value = name.partition("@")
    if not at:
        return settings
    if backend not in VARIANTS:
        raise UserError(f"{backend} has no variants; write it without @{value}")
    setting = VARIANTS[backend]
    possible = get_args(next(field.type for field in dataclasses.fields(Settings) if field.name == setting))
    chosen = next((one for one in possible if str(one) == value), None)
    if chosen is None:
        raise UserError(f"there is no {name}; choose from: {', '.join(f'{backend}@{one}' for one in possible)}")
    return dataclasses.replace(settings, **{setting: chosen})

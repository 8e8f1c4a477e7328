"""How the settings of two runs differ wherever the run time depends on them."""

import dataclasses
from collections.abc import Iterable

from common import backends
from common.command_line import flag
from common.config import Role, Settings, with_role
from common.declarations import own_settings
from common.model.workload_table import SIZES

# How data is read from disk, like workload and scaling, makes groups; of the device the one that was used is compared.
MAY_DIFFER = {*with_role(Role.MAY_DIFFER), *backends.variant_settings()}
COMPARED = [field.name for field in dataclasses.fields(Settings) if field.name not in MAY_DIFFER and field.name not in own_settings()]
# Of the runs of one backend.
COMPARED_OF_BACKEND = [name for name in own_settings() if name not in MAY_DIFFER]
# Settings of the model, which the digest of a workload has as they come out: a default may be given.
OF_MODEL = (*SIZES, "model_args", "tokenizer")


def setting_differences(settings: Settings, first_settings: Settings, names: Iterable[str]) -> dict[str, str]:
    """Returns by name a text on each of these settings that differs."""
    values = {name: (getattr(settings, name), getattr(first_settings, name)) for name in names}
    return {name: f"{flag(name)} {value} and {first_value}" for name, (value, first_value) in values.items() if value != first_value}

"""How the settings of two runs differ wherever the run time depends on them."""

import dataclasses

from common import backends
from common.command_line import flag
from common.config import Role, Settings, with_role
from common.model import model_sizes

# How data is read from disk, like workload and scaling, makes groups; of the device the one that was used is compared.
MAY_DIFFER = {*with_role(Role.MAY_DIFFER), *backends.variant_settings()}
COMPARED = [field for field in dataclasses.fields(Settings) if field.name not in MAY_DIFFER]
# Settings of the model, which the digest of a workload has as they come out: a default may be given.
OF_MODEL = (*model_sizes.FIELDS, "model_args", "tokenizer")


def setting_differences(settings: Settings, first_settings: Settings, with_model: bool = False) -> dict[str, str]:
    """Returns by name a text on each of the compared settings that differs, and with `with_model` on those of OF_MODEL."""
    names = [*(field.name for field in COMPARED), *(OF_MODEL if with_model else ())]
    values = {name: (getattr(settings, name), getattr(first_settings, name)) for name in names}
    return {name: f"{flag(name)} {value} and {first_value}" for name, (value, first_value) in values.items() if value != first_value}

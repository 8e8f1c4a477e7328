"""Whether records are comparable: one machine, one training, and equal settings wherever the run time depends on them."""

import dataclasses

from common import backends
from common.command_line import flag
from common.config import TRAINING_SETTINGS, Role, Settings, with_role
from common.errors import UserError
from launch.report import entries

# How data is read from disk, like workload and scaling, makes groups; of the device the one that was used is compared.
MAY_DIFFER = {*with_role(Role.MAY_DIFFER), *backends.variant_settings()}
COMPARED = [field for field in dataclasses.fields(Settings) if field.name not in MAY_DIFFER]


def check(records):
    """Raises UserError for records of several machines, of different training or devices under one workload, scaling and way of reading
    the data, or of different numbers of nodes or different transports for one backend and size.

    A run that failed before its workload digest was known has no measurements and is accepted.
    """
    machines = sorted({record.settings.machine for record in records})
    if len(machines) > 1:
        raise UserError(f"the records are of several machines ({', '.join(machines)}); compare one machine at a time")
    first = {}
    for record in records:
        if not record.workload_digest:
            continue
        other = first.setdefault(entries.group_of(record), record)
        names = f"{record.settings.run_id} and {other.settings.run_id}"
        differences = _differences(record.settings, other.settings)
        if other.workload_digest != record.workload_digest:
            trained = [text for name, text in differences if name in (*TRAINING_SETTINGS, "epochs")]
            raise UserError(
                f"{names} trained different things ({', '.join(trained) or 'their data or rate factors differ'}); compare them separately"
            )
        if differences:
            raise UserError(f"{names} have different settings ({', '.join(text for _, text in differences)}); compare them separately")
    _check_devices(records)
    _check_repeats(records, "num_nodes", "on different numbers of nodes")
    _check_repeats(records, "transport", "over different transports")


def device_of(record):
    """The device that a run used, `cpu` or `cuda`; None where it is not known, as of a run that failed before it was chosen."""
    asked_for = record.settings.device
    return record.environment.device or (None if asked_for == "auto" else asked_for)


def _check_devices(records):
    """Raises UserError where runs of one workload and scaling used different devices."""
    first = {}
    for record in (record for record in records if record.workload_digest and device_of(record)):
        other = first.setdefault(entries.group_of(record), record)
        if device_of(other) != device_of(record):
            names = f"{record.settings.run_id} and {other.settings.run_id}"
            raise UserError(f"{names} ran on different devices ({device_of(record)} and {device_of(other)}); compare them separately")


def _check_repeats(records, key, difference):
    """Raises UserError where runs of one backend at one size, which are repeats, differ in a key that is known of them."""
    first = {}
    for record in records:
        value = getattr(record, key)
        if value is None:
            continue
        other = first.setdefault((record.workload, record.scaling, record.backend, record.num_ranks), record)
        if getattr(other, key) != value:
            names = f"{record.settings.run_id} and {other.settings.run_id}"
            raise UserError(f"{names} ran {difference} ({value} and {getattr(other, key)}); compare them separately")


def _differences(settings, others):
    """[(name, text)] of the compared settings that differ."""
    pairs = [(field.name, getattr(settings, field.name), getattr(others, field.name)) for field in COMPARED]
    return [(name, f"{flag(name)} {value} and {other}") for name, value, other in pairs if value != other]

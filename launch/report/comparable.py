"""Whether records are comparable: one machine, one training, and equal settings wherever the run time depends on them."""

import dataclasses

from common import backends
from common.command_line import flag
from common.config import TRAINING_SETTINGS, Settings
from common.errors import UserError
from launch.report import entries

# Settings that may differ within a comparison: identifiers, settings covered by the workload digest or without effect on run time, the
# variant of a backend, and the device that was asked for, since the one that was used is compared. How
# data is read from disk makes groups.
MAY_DIFFER = {
    "seed",
    "repeat",
    "run_id",
    "results",
    "machine",
    "learning_rate_factor",
    "workload",
    "scaling",
    "data_dir",
    "tokenizer",
    "resume",
    "watchdog_timeout",
    "device",
    "step_breakdown",
    "mllog",
    "data_format",
    "data_budget",
    "num_workers",
    "prefetch",
    "drop_caches",
    *backends.variant_settings(),
}
COMPARED = [field for field in dataclasses.fields(Settings) if field.name not in MAY_DIFFER]


def check(found):
    """Raises UserError for records of several machines, of different training or devices under one workload, scaling and way of reading
    the data, or of different numbers of nodes or different transports for one backend and size.

    A run that failed before its workload digest was known has no measurements and is accepted.
    """
    machines = sorted({record["settings"]["machine"] for record in found})
    if len(machines) > 1:
        raise UserError(f"the records are of several machines ({', '.join(machines)}); compare one machine at a time")
    first = {}
    for record in found:
        if not record["workload_digest"]:
            continue
        other = first.setdefault(entries.group_of(record), record)
        names = f"{record['settings']['run_id']} and {other['settings']['run_id']}"
        differences = _differences(record["settings"], other["settings"])
        if other["workload_digest"] != record["workload_digest"]:
            trained = [text for name, text in differences if name in (*TRAINING_SETTINGS, "epochs")]
            raise UserError(
                f"{names} trained different things ({', '.join(trained) or 'their data or rate factors differ'}); compare them separately"
            )
        if differences:
            raise UserError(f"{names} have different settings ({', '.join(text for _, text in differences)}); compare them separately")
    _check_devices(found)
    _check_repeats(found, "num_nodes", "on different numbers of nodes")
    _check_repeats(found, "transport", "over different transports")


def device_of(record):
    """The device that a run used, `cpu` or `cuda`; None where an older record does not tell, or the run failed before it was chosen."""
    asked_for = record["settings"].get("device", "auto")
    return record["environment"].get("device") or (None if asked_for == "auto" else asked_for)


def _check_devices(found):
    """Raises UserError where runs of one workload and scaling used different devices."""
    first = {}
    for record in (record for record in found if record["workload_digest"] and device_of(record)):
        other = first.setdefault(entries.group_of(record), record)
        if device_of(other) != device_of(record):
            names = f"{record['settings']['run_id']} and {other['settings']['run_id']}"
            raise UserError(f"{names} ran on different devices ({device_of(record)} and {device_of(other)}); compare them separately")


def _check_repeats(found, key, difference):
    """Raises UserError where runs of one backend at one size, which are repeats, differ in a key; older records may not have it."""
    first = {}
    for record in (record for record in found if record.get(key) is not None):
        other = first.setdefault(tuple(record[name] for name in ("workload", "scaling", "backend", "num_ranks")), record)
        if other[key] != record[key]:
            names = f"{record['settings']['run_id']} and {other['settings']['run_id']}"
            raise UserError(f"{names} ran {difference} ({record[key]} and {other[key]}); compare them separately")


def _differences(settings, others):
    """[(name, text)] of the compared settings that differ; a setting that is missing in an older record had its default."""
    pairs = [(field.name, settings.get(field.name, field.default), others.get(field.name, field.default)) for field in COMPARED]
    return [(name, f"{flag(name)} {value} and {other}") for name, value, other in pairs if value != other]

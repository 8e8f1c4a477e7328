"""Whether records may stand in one comparison: of one machine, of one training, with the settings that its time depends on alike."""

import dataclasses

from common.config import MATHEMATICS, Settings, flag
from common.errors import UserError
from common.variants import VARIANTS

# What may differ between the runs of one comparison: names of a run, what the digest covers better or no time depends on, and the
# variant of a backend.
MAY_DIFFER = {
    "seed",
    "repeat",
    "run_id",
    "results",
    "machine",
    "rate_factor",
    "workload",
    "scaling",
    "data_dir",
    "resume",
    "stall_limit",
    "account",
    *VARIANTS.values(),
}
COMPARED = [field for field in dataclasses.fields(Settings) if field.name not in MAY_DIFFER]


def check(found):
    """Raises UserError where records are of several machines, those of one workload and scaling trained different things, or those of
    one backend and size ran on different numbers of nodes.

    A run that ended before it knew what it would train has no numbers that could be mixed, and is let through.
    """
    machines = sorted({record["settings"]["machine"] for record in found})
    if len(machines) > 1:
        raise UserError(f"these records are of several machines ({', '.join(machines)}); compare one machine at a time")
    first = {}
    for record in found:
        if not record["workload_digest"]:
            continue
        other = first.setdefault((record["workload"], record["scaling"]), record)
        names = f"{record['settings']['run_id']} and {other['settings']['run_id']}"
        differences = _differences(record["settings"], other["settings"])
        if other["workload_digest"] != record["workload_digest"]:
            trained = [text for name, text in differences if name in (*MATHEMATICS, "epochs")]
            raise UserError(
                f"{names} trained different things ({', '.join(trained) or 'their data or rate factors differ'}); compare them apart"
            )
        if differences:
            raise UserError(f"{names} have different settings ({', '.join(text for _, text in differences)}); compare them apart")
    _check_nodes(found)


def _check_nodes(found):
    """Raises UserError where runs of one backend at one size, which stand for one another, were on different numbers of nodes."""
    first = {}
    for record in (record for record in found if record["nodes"] is not None):
        other = first.setdefault(tuple(record[key] for key in ("workload", "scaling", "backend", "ranks")), record)
        if other["nodes"] != record["nodes"]:
            names = f"{record['settings']['run_id']} and {other['settings']['run_id']}"
            raise UserError(f"{names} were on different numbers of nodes ({record['nodes']} and {other['nodes']}); compare them apart")


def _differences(settings, others):
    """[(name, text)] of the compared settings that differ; one that an older record does not know was at its default."""
    pairs = [(field.name, settings.get(field.name, field.default), others.get(field.name, field.default)) for field in COMPARED]
    return [(name, f"{flag(name)} {value} and {other}") for name, value, other in pairs if value != other]

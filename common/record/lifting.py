"""Lifts the record of an older run to the present definition. Only keys were added since: each gets the value that it had unsaid."""

import dataclasses
from typing import get_args, get_origin, get_type_hints

from common.config import Settings, as_json
from common.record.definition import Record
from common.workloads import LATER


def lifted(record):
    """A record as a dict, with every key of common.record.definition in its order.

    A key that is missing has its default; an older backend was exact and had a model in every rank. A key without a default
    stays missing, and a value of the wrong type stays as it is: the schema refuses both.
    """
    complete = _with_defaults(Record, {"exact": True, "data_parallel_degree": record.get("num_ranks")} | record)
    if isinstance(settings := complete.get("settings"), dict):
        # A later setting of the workload's had the value that its digest leaves out.
        complete["settings"] = {name: dict(LATER).get(name, value) for name, value in as_json(Settings()).items()} | settings
    return complete


def _with_defaults(kind, values):
    """The values of a dataclass of the definition, and of those in it, by name, with the defaults of those that are missing."""
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    ordered = {name: values.get(name, default) for name, default in defaults.items()} | values
    for name, hint in get_type_hints(kind).items():
        if isinstance(ordered[name], dict) and get_origin(hint) is not dict and (part := dataclass_in(hint)):
            ordered[name] = _with_defaults(part, ordered[name])
    return {name: value for name, value in ordered.items() if value is not dataclasses.MISSING}


def dataclass_in(hint):
    """The dataclass that a type of the definition is, may be or holds; None where there is none."""
    return next(filter(dataclasses.is_dataclass, (hint, *get_args(hint))), None)

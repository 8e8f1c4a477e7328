"""Files -> records, and the files that are not records: damaged, incomplete, or with another layout."""

import contextlib
import dataclasses
import json
import math
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jsonschema

from common.errors import UserError
from common.record import records

SCHEMA_FILE = records.ROOT / "results" / "schema.json"
# Temporary files of records.write; one remains where the program was killed before it renamed it.
INCOMPLETE = ".json.part"
# The schema of an item of a record's longest lists, and the types of the items that it takes.
NUMBER_OR_NULL = {"type": ["number", "null"]}
NUMBER_TYPES = {int, float, type(None)}


class Damaged(NamedTuple):
    """A file that cannot be read as a record, and the reason."""

    path: Path
    reason: str


def collect(paths):
    """(records, list of Damaged) of files and of folders, recursively, by name. A file given twice is read once; a copy counts as damaged.

    Raises UserError where a path is missing, and where no record is found.
    """
    if not paths:
        raise UserError("which records? Give files or folders, such as results/MACHINE")
    collected, damaged, paths_by_run = [], [], {}
    # Path.resolve raises for a link to itself, which should be listed as damaged.
    for path in dict.fromkeys(Path(os.path.realpath(file)) for source in paths for file in _files(source)):
        if path == SCHEMA_FILE:
            continue
        values = _read(path)
        if isinstance(values, Damaged):
            damaged.append(values)
        # A copy counted as a repeat would narrow the interval.
        elif (first_path := paths_by_run.setdefault(_identity(values), path)) != path:
            damaged.append(Damaged(path, f"the same run as {first_path}"))
        else:
            record = records.from_json(values)
            # A run without a run_id is identified by its file name.
            record.settings = dataclasses.replace(record.settings, run_id=record.settings.run_id or path.stem)
            collected.append(record)
    if not collected:
        reason = f"; {damaged[0].path}: {damaged[0].reason}" if damaged else ""
        raise UserError(f"there is no record in {', '.join(map(str, paths))}{reason}")
    return collected, damaged


def state(paths):
    """{file: modification time} of the records, to detect new and changed ones. Raises UserError where a path is missing."""
    times = {}
    for path in (file for source in paths for file in _files(source)):
        with contextlib.suppress(OSError):
            times[path] = path.stat().st_mtime_ns
    return times


def _files(path):
    if not path.exists():
        raise UserError(f"{path} does not exist; give a record or a folder of records")
    return records.files(path, (".json", INCOMPLETE)) if path.is_dir() else [path]


def _read(path):
    """The JSON object of a record, lifted and valid, or a Damaged."""
    if path.name.endswith(INCOMPLETE):
        return Damaged(path, "incomplete: its program was killed, or is still writing")
    try:
        values = json.loads(path.read_text(), parse_constant=_reject_constant, parse_int=_whole, parse_float=_real)
    except OSError as error:
        return Damaged(path, error.strerror)
    except (ValueError, RecursionError) as error:
        return Damaged(path, f"not JSON: {error}")
    schema = values.get("schema") if isinstance(values, dict) else None
    if schema != records.SCHEMA:
        has = f"has schema {str(schema)[:20]}; this version of Tandem reads {records.SCHEMA}"
        return Damaged(path, has if schema is not None else "not a record: it has no schema")
    values = records.lifted(values)
    if error := jsonschema.exceptions.best_match(validator().iter_errors(values)):
        return Damaged(path, f"violates results/schema.json: {'/'.join(map(str, error.path)) or 'record'}: {error.message[:200]}")
    return values


def _identity(values):
    """What identifies a run, whatever its file name: run_id and start, or the whole record where there is no run_id."""
    run_id = values["settings"]["run_id"]
    return (run_id, values["started_at"]) if run_id else json.dumps(values, sort_keys=True)


def _real(text):
    """A JSON number as a float. Raises ValueError where none can hold it."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]}{'…' if len(text) > 20 else ''} is too large a number")
    return number


def _whole(text):
    _real(text)
    return int(text)


def _reject_constant(name):
    raise ValueError(f"{name} is not a JSON number; unknown values are null")


@cache
def validator():
    """The validator of records by results/schema.json."""
    kind = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"items": _items})
    return kind(json.loads(SCHEMA_FILE.read_text()))


def _items(validator, items, instance, schema):
    """The keyword `items`. jsonschema takes seconds for the numbers of a folder of records, since it makes a validator for each."""
    if items == NUMBER_OR_NULL and isinstance(instance, list) and set(map(type, instance)) <= NUMBER_TYPES:
        return ()
    return jsonschema.Draft202012Validator.VALIDATORS["items"](validator, items, instance, schema)

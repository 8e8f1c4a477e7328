"""Files -> records, and which files hold none: damaged, half written, or of another layout."""

import contextlib
import json
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jsonschema

from common import records
from common.errors import UserError

SCHEMA_FILE = records.ROOT / "results" / "schema.json"
# records.write leaves this behind where its program was ended before the file had its name.
PART = ".json.part"


class Damaged(NamedTuple):
    """A file that should hold a record, and why it cannot be read as one."""

    path: Path
    why: str


def collect(paths):
    """(records, list of Damaged) of files and of folders with their subfolders, by name; a file given twice is read once, a copy is damage.

    Raises UserError where a path is not there, where nothing is found, and for a whole record of another schema.
    """
    found, damaged, seen = [], [], {}
    # Path.resolve would stop at a link to itself, which is to be listed.
    for path in dict.fromkeys(Path(os.path.realpath(one)) for given in paths for one in _files(given)):
        if path == SCHEMA_FILE:
            continue
        read = _read(path)
        if not isinstance(read, Damaged):
            # A copy counted as a repeat would make a result look surer than it is.
            run = _identity(read)
            # A run that was given no name has taken its file's.
            read["settings"]["run_id"] = read["settings"]["run_id"] or path.stem
            read = Damaged(path, f"the same run as {seen[run]}") if run in seen else read
            seen.setdefault(run, path)
        (damaged if isinstance(read, Damaged) else found).append(read)
    if not found:
        said = f"; {damaged[0].path}: {damaged[0].why}" if damaged else ""
        raise UserError(f"there is no record in {', '.join(map(str, paths))}{said}")
    return found, damaged


def state(paths):
    """What tells that a record has come or changed: {file: when it was written}. Raises UserError where a path is not there."""
    found = {}
    for path in (one for given in paths for one in _files(given)):
        with contextlib.suppress(OSError):
            found[path] = path.stat().st_mtime_ns
    return found


def _files(path):
    if not path.exists():
        raise UserError(f"{path} is not there; give a record or a folder of records")
    return records.files(path, (".json", PART)) if path.is_dir() else [path]


def _read(path):
    if path.name.endswith(PART):
        return Damaged(path, "half written: its program ended, or is still at it")
    try:
        record = json.loads(path.read_text(), parse_constant=_no_number)
    except OSError as error:
        return Damaged(path, error.strerror)
    except (ValueError, RecursionError) as error:
        return Damaged(path, f"not JSON: {error}")
    if not isinstance(record, dict) or "schema" not in record:
        return Damaged(path, "no record: it has no schema")
    if record["schema"] != records.SCHEMA:
        raise UserError(
            f"{path} has schema {record['schema']}, this Tandem reads {records.SCHEMA}; compare records of one schema, move it away"
        )
    error = jsonschema.exceptions.best_match(_validator().iter_errors(record))
    if error:
        return Damaged(path, f"not as results/schema.json says: {'/'.join(map(str, error.path)) or 'record'}: {error.message[:200]}")
    return record


def _identity(record):
    """What tells a run from all others, whatever its file is called: its name and start, or all that is told of one without a name."""
    name = record["settings"]["run_id"]
    return (name, record["started_at"]) if name else json.dumps(record, sort_keys=True)


def _no_number(name):
    raise ValueError(f"{name} is no number there; what is not known is null")


@cache
def _validator():
    return jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))

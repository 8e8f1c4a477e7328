"""The files of records: their names and folders, writing one atomically, and reading them for every program.

A file that is no record is left out and named, with the place of the mistake.
"""

import contextlib
import dataclasses
import functools
import json
import os
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from common import config, durable
from common.command_line import shortened
from common.config import Settings
from common.declarations import ROOT
from common.errors import UserError, printable
from common.record.definition import SCHEMA, Record, problems

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

# The folder of a run's traces has the name of its record with this ending.
TRACES_END = ".trace"
CHECKPOINT_ENDS = ".checkpoint"
SCHEMA_FILE = ROOT / "results" / "schema.json"
# Temporary files of `write`; one remains where the program was killed before it renamed it.
INCOMPLETE = ".json.part"


class Damaged(NamedTuple):
    """A file that is no record, or a folder that is not read, and the reason for it."""

    path: Path
    reason: str


def folder(settings: Settings) -> Path:
    """Names the folder of the records of a machine."""
    return settings.results / machine_name(settings.machine)


def trace_folder(settings: Settings) -> Path:
    """Names the folder of a run's traces, beside its record. The run must have a name."""
    return folder(settings) / f"{settings.run_id}{TRACES_END}"


def checkpoint_folder(settings: Settings) -> Path:
    """Names the folder of the checkpoint that a run keeps of its own accord, beside its record. The run must have a name."""
    return folder(settings) / f"{settings.run_id}{CHECKPOINT_ENDS}"


def make_trace_folder(settings: Settings, flag: str) -> Path:
    """Creates the folder of a run's traces. Raises UserError without a run id: ranks would choose different names."""
    if settings.run_id is None:
        raise UserError(f"{flag} writes into a folder with the run's name; give one with --run-id")
    trace_folder(settings).mkdir(parents=True, exist_ok=True)
    return trace_folder(settings)


def machine_name(chosen: str | None) -> str:
    """Names the machine: as chosen, else by its batch system, else by its host. Raises UserError where that is no name of a folder."""
    # The number of a job of PBS ends in the name of its server, which the nodes of a machine share.
    pbs_server = os.environ.get("PBS_JOBID", "").partition(".")[2]
    name = chosen or os.environ.get("SLURM_CLUSTER_NAME") or (pbs_server or socket.gethostname()).split(".")[0]
    if problem := config.NAME_OF_MACHINE.problem(name):
        raise UserError(f"this machine calls itself {shortened(name)!r}; {problem} in a name of your own, with --machine")
    return name


def new_stamp() -> str:
    """Makes a unique beginning of run names, also where several runs begin in the same second, on whichever nodes."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def run_name(backend: str, settings: Settings, num_ranks: int) -> str:
    return settings.run_id or f"{new_stamp()}-{settings.workload}-{backend}-n{num_ranks}-s{settings.seed}"


def expect_writable(path: Path) -> None:
    """Raises UserError if a folder of records cannot be made or written, as far as that can be found out without making it."""
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK)):
        reason = "Permission denied" if existing.is_dir() else f"{existing} is not a folder"
        raise UserError(f"cannot write records to {path} ({reason}); give another folder with --results")


def make_folder(path: Path, content: str = "records", option: str = "--results") -> None:
    """Creates a folder and checks that it is writable. Raises UserError if it is not; `option` is the flag for another folder."""
    with writing(path, content, option):
        path.mkdir(parents=True, exist_ok=True)
        # Its name is unique, also where another node has a process with this ID.
        tempfile.TemporaryFile(dir=path).close()


@contextlib.contextmanager
def writing(path: Path, content: str = "records", option: str = "--results") -> Iterator[None]:
    """Within this context an error of the system in a folder becomes a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {content} to {path} ({error.strerror}); give another folder with {option}") from None


def write(path: Path, record: Record) -> None:
    """Writes a Record durably and atomically."""
    durable.write_text(path, text_of(record))


def text_of(record: Record) -> str:
    """Formats a Record as JSON with a line for each key. Numbers that are not finite become null."""
    finite = json.loads(json.dumps(as_json(record)), parse_constant=lambda _: None)
    return "{\n" + ",\n".join(f" {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in finite.items()) + "\n}\n"


def as_json(record: Record) -> dict[str, Any]:
    """Converts a Record to a JSON object."""
    return dataclasses.asdict(record) | {"settings": config.as_json(record.settings)}


@functools.cache
def adapter() -> "TypeAdapter[Record]":
    """Builds pydantic's reader of records, which takes a tenth of a second."""
    # Imported here, since ranks, which read no records, need not have it.
    from pydantic import TypeAdapter

    return TypeAdapter(Record)


def parsed(text: str | bytes) -> Record:
    """Reads the Record in a JSON text. Raises ValueError, in one line and with the place of the mistake, for any other text."""
    try:
        values = json.loads(text, object_pairs_hook=of_unique_keys)
        json.dumps(values, allow_nan=False)
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    except ValueError as problem:
        raise ValueError(f"not JSON: {problem}") from None
    schema = values.get("schema") if isinstance(values, dict) else None
    if schema != SCHEMA or isinstance(schema, bool | float):
        of_another_version = f"has schema {shortened(str(schema), 20)}; this version of Tandem reads {SCHEMA}"
        raise ValueError("not a record: it has no schema" if schema is None else of_another_version)
    reader = adapter()
    from pydantic import ValidationError

    try:
        # pydantic gives a key that is missing its default.
        record = reader.validate_json(text)
    except ValidationError as invalid:
        raise ValueError(f"not a record: {first_mistake(invalid)}") from None
    if problem := next(problems(record), None):
        raise ValueError(f"not a record: {problem}")
    return record


def read(path: Path) -> Record:
    """Reads the Record in a file. Raises UserError where the file is no record."""
    record = _read(path)
    if isinstance(record, Damaged):
        raise UserError(f"{path}: {record.reason}; move it away, or give another folder with --results")
    return record


def collect(paths: Sequence[Path]) -> tuple[list[Record], list[Damaged]]:
    """Reads the records of files and of folders, recursively and by name. A file given twice is read once; a copy is damaged.

    Raises UserError where a path is missing.
    """
    records_read: list[Record] = []
    damaged: list[Damaged] = []
    paths_by_run: dict[Hashable, Path] = {}
    # Path.resolve raises for a link to itself, which should be listed as damaged.
    for path in dict.fromkeys(Path(os.path.realpath(file)) for source in paths for file in paths_in(source, damaged)):
        if path == SCHEMA_FILE:
            continue
        record = _read(path)
        if isinstance(record, Damaged):
            damaged.append(record)
        # A copy counted as a repeat would narrow the interval.
        elif (first_path := paths_by_run.setdefault(_identity(record), path)) != path:
            damaged.append(Damaged(path, f"the same run as {first_path}"))
        else:
            # A run without a run_id is identified by its file name.
            record.settings = dataclasses.replace(record.settings, run_id=record.settings.run_id or path.stem)
            records_read.append(record)
    return records_read, damaged


def report_damaged(damaged: Sequence[Damaged]) -> None:
    """Prints the first of what is left out, and how many more there are, in one line."""
    if damaged:
        num_more = f" (and {len(damaged) - 1} more, which launch.compare lists)" if len(damaged) > 1 else ""
        print(printable(f"left out {damaged[0].path}: {damaged[0].reason}{num_more}"), file=sys.stderr)


def paths_in(source: Path, damaged: list[Damaged]) -> list[Path]:
    """Lists the files at a path that may be records, by path: in a folder and its subfolders, but for hidden ones and folders of traces.

    Folders that are not read are added to `damaged`. Raises UserError where the path does not exist.
    """
    if not source.exists():
        raise UserError(f"{source} does not exist; give a record or a folder of records")
    if not source.is_dir():
        return [source]
    paths = []
    unreadable = lambda problem: damaged.append(Damaged(Path(problem.filename), problem.strerror))  # noqa: E731
    for folder, subfolders, names in os.walk(source, onerror=unreadable):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith(".") and not name.endswith(TRACES_END))
        linked = [Path(folder, name) for name in subfolders if Path(folder, name).is_symlink()]
        damaged += [Damaged(path, "a link to a folder, which is not followed; name that too") for path in linked]
        paths += [Path(folder, name) for name in names if name.endswith((".json", INCOMPLETE)) and not name.startswith(".")]
    return sorted(paths)


def _read(path: Path) -> Record | Damaged:
    try:
        if path.name.endswith(INCOMPLETE):
            return Damaged(path, "incomplete: its program was killed, or is still writing")
        return parsed(durable.read_bytes(path))
    except OSError as problem:
        return Damaged(path, problem.strerror or str(problem))
    except ValueError as problem:
        return Damaged(path, printable(shortened(str(problem), 300)))


def _identity(record: Record) -> Hashable:
    """Identifies a run, whatever its file name: by run_id and start, or by the whole record where there is no run_id."""
    run_id = record.settings.run_id
    return (run_id, record.started_at) if run_id else json.dumps(as_json(record), sort_keys=True)


def of_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Makes an object of JSON. Raises ValueError for a key that stands there twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} stands there twice")
    return values


def first_mistake(invalid: "ValidationError", content: str = "record") -> str:
    """Describes the first mistake that pydantic has found in a content, with its path and its value."""
    mistake = invalid.errors(include_url=False)[0]
    path = "/".join(map(str, mistake["loc"])) or content
    if mistake["type"] == "missing":
        return f"{path}: it is missing"
    if mistake["type"] == "unexpected_keyword_argument":
        return f"{path}: there is no such key"
    return f"{path}: {mistake['msg'].replace('Input', 'it', 1)}, not {shortened(json.dumps(mistake['input'], default=str))}"

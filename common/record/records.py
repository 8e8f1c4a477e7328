"""The record of a run: a JSON file, written when the run starts and replaced atomically."""

import contextlib
import dataclasses
import json
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from common import backends, config, durable, workloads
from common.batch_plan import BatchPlan
from common.errors import UserError
from common.process.ranks import Ranks
from common.record.definition import Record
from common.record.parts import Environment

# The folder of a run's traces has the name of its record with this ending.
TRACES_END = ".trace"


def new(
    backend: str, settings: config.Settings, ranks: Ranks, plan: BatchPlan, launch: Mapping[str, Any], environment: Environment
) -> Record:
    """Makes the Record of a run at its start. `launch` has the `launcher` and the `command`."""
    return Record(
        started_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        backend=backend,
        workload=settings.workload,
        num_ranks=ranks.size,
        data_parallel_degree=plan.degree,
        global_batch=plan.global_batch,
        local_batch=plan.local_batch,
        micro_batch=plan.micro_batch,
        exact=backends.is_exact(backend),
        repeat=settings.repeat,
        seed=settings.seed,
        scaling=settings.scaling,
        launcher=launch["launcher"],
        command=launch["command"],
        target=settings.target,
        settings=settings,
        environment=environment,
    )


def plan_of(record: Record) -> BatchPlan:
    """Returns the plan of a run's batch. That of an older record, which does not have it, follows from the settings."""
    if record.global_batch is None or record.local_batch is None or record.micro_batch is None:
        return workloads.batch_plan(record.settings, record.data_parallel_degree)
    return BatchPlan(record.global_batch, record.local_batch, record.micro_batch, record.data_parallel_degree)


def as_json(record: Record) -> dict[str, Any]:
    """Converts a Record to a JSON object."""
    return dataclasses.asdict(record) | {"settings": config.as_json(record.settings)}


def folder(settings: config.Settings) -> Path:
    """Names the folder of the records of a machine."""
    return settings.results / machine_name(settings.machine)


def trace_folder(settings: config.Settings) -> Path:
    """Names the folder of a run's traces, beside its record. The run must have a name."""
    return folder(settings) / f"{settings.run_id}{TRACES_END}"


def make_trace_folder(settings: config.Settings, flag: str) -> Path:
    """Creates the folder of a run's traces. Raises UserError without a run id: ranks would choose different names."""
    if settings.run_id is None:
        raise UserError(f"{flag} writes into a folder with the run's name; give one with --run-id")
    trace_folder(settings).mkdir(parents=True, exist_ok=True)
    return trace_folder(settings)


def machine_name(given: str | None) -> str:
    """Names the machine: as given, else by its batch system, else by its host."""
    # The number of a job of PBS ends in the name of its server, which the nodes of a machine share.
    pbs_server = os.environ.get("PBS_JOBID", "").partition(".")[2]
    return given or os.environ.get("SLURM_CLUSTER_NAME") or (pbs_server or socket.gethostname()).split(".")[0]


def new_stamp() -> str:
    """Makes a unique beginning of run names, also where several runs begin in the same second, on whichever nodes."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def run_name(backend: str, settings: config.Settings, num_ranks: int) -> str:
    return settings.run_id or f"{new_stamp()}-{settings.workload}-{backend}-n{num_ranks}-s{settings.seed}"


def write(path: Path, record: Record) -> None:
    """Writes a Record durably and atomically."""
    durable.write_text(path, text_of(record))


def text_of(record: Record) -> str:
    """Formats a Record as JSON with a line for each key. Numbers that are not finite become null."""
    finite = json.loads(json.dumps(as_json(record)), parse_constant=lambda _: None)
    return "{\n" + ",\n".join(f" {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in finite.items()) + "\n}\n"


def required() -> list[str]:
    """Lists the keys that a record has from its beginning, since they have no default."""
    missing = dataclasses.MISSING
    return [field.name for field in dataclasses.fields(Record) if field.default is field.default_factory is missing]


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

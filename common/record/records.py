"""The record of a run: a JSON file, written when the run starts and replaced atomically."""

import contextlib
import dataclasses
import json
import os
import platform
import re
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

from common import backends, config, durable
from common.backends import ROOT
from common.batch_plan import BatchPlan
from common.data.folders import is_hidden
from common.errors import UserError
from common.process import binding, control_groups, mpi
from common.process.ranks import Ranks
from common.record.definition import SCHEMA, Environment, Record

# The folder of a run's traces has the name of its record with this ending.
TRACES_END = ".trace"
PACKAGES = ("torch", "tensorflow-cpu", "tensorflow", "tf-keras", "horovod", "deepspeed", "mpi4py", "mpich", "numpy", "h5py")
# Variables that affect a run. Names of people, projects and keys are not recorded.
ENVIRONMENT = re.compile(
    r"(OMP|GOMP|KMP|MKL|ONEDNN|ATEN|OPENBLAS|HOROVOD|NCCL|GLOO|MPICH|MPIR_CVAR|I_MPI|FI|UCX|MALLOC|TORCH|TORCHINDUCTOR|CUDA|DS|HDF5"
    r"|TF_(CPP|DETERMINISTIC|ENABLE|FORCE|GPU|NUM|USE|XLA))_[A-Z0-9_]+|LD_PRELOAD"
)
VECTOR_FLAGS = re.compile(r"sse4_[12]|f16c|fma|avx\w*|amx_\w+|asimd\w*|sve\w*|sme\w*|bf16|i8mm|altivec|vsx")


def new(backend: str, settings: config.Settings, ranks: Ranks, plan: BatchPlan, launch: dict, surroundings: dict) -> Record:
    """The Record of a run at its start.

    `launch`: `launcher`, `command` and `launched_at` (seconds since 1970) of the launch. `surroundings`: the `environment`, which is
    needed only on the rank that writes the record.
    """
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
        environment=surroundings,
    )


def lifted(record):
    """A record as a dict, with every key of common.record.definition in its order.

    Keys were added since older records were written, and `cores_by_rank` was that of rank 0. One that is missing has its default; an older
    backend was exact and had a model in every rank. A key without a default stays missing, and a value of the wrong type stays as it is:
    the schema refuses both.
    """
    if isinstance(environment := record.get("environment"), dict) and "cores_of_rank_0" in environment:
        others = {name: value for name, value in environment.items() if name != "cores_of_rank_0"}
        cores_by_rank = [environment["cores_of_rank_0"]] + [None] * (record.get("num_ranks", 1) - 1)
        record = record | {"environment": others | {"cores_by_rank": cores_by_rank}}
    complete = _with_defaults(Record, {"exact": True, "data_parallel_degree": record.get("num_ranks")} | record)
    if isinstance(settings := complete.get("settings"), dict):
        complete["settings"] = config.as_json(config.Settings()) | settings
    return complete


def _with_defaults(kind, values):
    """The values of a dataclass of the definition, and of those in it, by name, with the defaults of those that are missing."""
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    ordered = {name: values.get(name, default) for name, default in defaults.items()} | values
    for name, hint in get_type_hints(kind).items():
        if isinstance(ordered[name], dict) and get_origin(hint) is not dict and (part := _dataclass_in(hint)):
            ordered[name] = _with_defaults(part, ordered[name])
    return {name: value for name, value in ordered.items() if value is not dataclasses.MISSING}


def _dataclass_in(hint):
    """The dataclass that a type of the definition is, may be or holds; None where there is none."""
    return next(filter(dataclasses.is_dataclass, (hint, *get_args(hint))), None)


def from_json(values):
    """The Record of a JSON object that follows the schema, with its sub-objects, and the Settings as `settings`."""
    record = _instance(Record, values)
    record.settings = config.from_json(values["settings"])
    return record


def _instance(kind, value):
    """A JSON value of a type of the definition: what a dataclass describes becomes one."""
    described = _dataclass_in(kind)
    if described is None or not isinstance(value, dict):
        return value
    if get_origin(kind) is dict:
        return {name: _instance(described, part) for name, part in value.items()}
    kinds = get_type_hints(described)
    return described(**{name: _instance(kinds[name], part) for name, part in value.items() if name in kinds})


def as_json(record):
    """The JSON object of a Record."""
    return dataclasses.asdict(record) | {"settings": config.as_json(record.settings)}


def folder(settings):
    return settings.results / machine_name(settings)


def trace_folder(settings):
    """The folder of a run's traces, beside its record. The run must have a name."""
    return folder(settings) / f"{settings.run_id}{TRACES_END}"


def make_trace_folder(settings, flag):
    """Creates and returns the folder of a run's traces. Raises UserError without a run id: ranks would choose different names."""
    if settings.run_id is None:
        raise UserError(f"{flag} writes into a folder with the run's name; give one with --run-id")
    trace_folder(settings).mkdir(parents=True, exist_ok=True)
    return trace_folder(settings)


def machine_name(settings):
    # The number of a job of PBS ends in the name of its server, which the nodes of a machine share.
    pbs_server = os.environ.get("PBS_JOBID", "").partition(".")[2]
    return settings.machine or os.environ.get("SLURM_CLUSTER_NAME") or (pbs_server or socket.gethostname()).split(".")[0]


def new_stamp():
    """The beginning of run names that no other has, also where several begin in one second, on whichever nodes."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def run_name(backend, settings, num_ranks):
    return settings.run_id or f"{new_stamp()}-{settings.workload}-{backend}-n{num_ranks}-s{settings.seed}"


def update(record, values):
    """Sets the keys of a Record that a measurement gives as {key: value}."""
    for key, value in values.items():
        setattr(record, key, value)


def write(path, record):
    """Writes a Record durably and atomically. Numbers that are not finite become null."""
    finite = json.loads(json.dumps(as_json(record)), parse_constant=lambda _: None)
    durable.write_text(path, as_text(finite) + "\n")


def as_text(values: dict) -> str:
    """JSON with a line for each key of an object."""
    return "{\n" + ",\n".join(f" {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in values.items()) + "\n}"


def expect_writable(path):
    """Raises UserError if a folder of records cannot be made or written, as far as that shows without making it."""
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK)):
        reason = "Permission denied" if existing.is_dir() else f"{existing} is not a folder"
        raise UserError(f"cannot write records to {path} ({reason}); give another folder with --results")


def make_folder(path, content="records", option="--results"):
    """Creates a folder and checks that it is writable. Raises UserError if it is not; `option` is the flag for another folder."""
    with writing(path, content, option):
        path.mkdir(parents=True, exist_ok=True)
        # Under a name of its own, also where another node has a process of this number.
        tempfile.TemporaryFile(dir=path).close()


@contextlib.contextmanager
def writing(path: Path, content: str = "records", option: str = "--results") -> Iterator[None]:
    """Within this context what the system refuses in a folder is a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {content} to {path} ({error.strerror}); give another folder with {option}") from None


def read(path):
    """The Record in a file, lifted to today's definition. Raises UserError if the file is damaged or has another schema version."""
    try:
        values = json.loads(path.read_text())
        schema = values.get("schema") if isinstance(values, dict) else None
        record = from_json(lifted(values)) if schema == SCHEMA else None
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read as a record ({error}); move it away") from None
    if record is None:
        raise UserError(
            f"{path} has schema {schema}, this version of Tandem reads {SCHEMA}; give another folder with --results or move it away"
        )
    return record


def files(folder, ends=(".json",)):
    """The files of a folder and its subfolders with these endings, sorted by path, without hidden ones and those in folders of traces."""
    paths = sorted(path for path in folder.rglob("*") if path.name.endswith(ends) and not is_hidden(path.relative_to(folder)))
    return [path for path in paths if not any(part.endswith(TRACES_END) for part in path.relative_to(folder).parts[:-1])]


def read_all(path):
    """The records of a file, or of all .json files in a folder and its subfolders except folders of traces, sorted by path."""
    if not path.exists():
        raise UserError(f"{path} does not exist; give a record or a folder of records")
    paths = files(path) if path.is_dir() else [path]
    return [read(record_path) for record_path in paths if record_path != ROOT / "results" / "schema.json"]


def instruction_sets():
    """The processor's, by which libraries choose their kernels; None where they are not known."""
    flags = _cpuinfo("flags|Features")
    return sorted(filter(VECTOR_FLAGS.fullmatch, flags.split())) if flags else None


def environment():
    """The `environment` of a record: versions, machine, commit, whitelisted variables."""
    surroundings = Environment(
        python=platform.python_version(),
        packages=dict(_versions()),
        mpi=None,
        host=socket.gethostname(),
        os=platform.platform(),
        cpu=_cpuinfo("model name") or platform.processor() or platform.machine(),
        instruction_sets=instruction_sets(),
        num_cores=binding.num_cores(range(os.cpu_count()), binding.core_of_threads()),
        quota_cores=control_groups.quota_cores(),
        allocator_keeps=False,
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        git_commit=_git("rev-parse", "HEAD"),
        git_changed=bool(_git("status", "--porcelain", "--untracked-files=no")),
        variables={name: os.environ[name] for name in sorted(os.environ) if ENVIRONMENT.fullmatch(name)},
    )
    return dataclasses.asdict(surroundings)


def mpi_library():
    """Name and version of the MPI library of this process, or None."""
    try:
        return mpi.loaded().Get_library_version().split("\n")[0].strip("\0 ")
    except (ImportError, RuntimeError):
        return None


def _versions():
    """(name, version) of the PACKAGES that are installed."""
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            yield name, version(name)


def _cpuinfo(keys):
    """What Linux tells of the first processor under one of the keys, a regular expression; None where it does not."""
    try:
        match = re.search(rf"^(?:{keys})\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return match and match[1]


def _git(*arguments):
    """What git prints of this checkout; None where it fails or prints nothing."""
    command = ["git", "--no-optional-locks", "-C", ROOT, *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() or None
    except (OSError, subprocess.CalledProcessError):
        return None

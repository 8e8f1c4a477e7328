"""What a matrix asks of a node, by programs that it starts there and that print their answers as lines of JSON.

python -m launch.run.node PRECISION BACKEND… says on which devices backends can train there. A node caches that for an hour. What may end
a process has one of its own, also of this program: --import BACKEND… imports backends.

python -m launch.run.node --rank CORES JOIN_SECONDS is a rank of a step of launch/matrix.sh --check: it meets the other ranks as those of
a run do, says where it is, and leaves. CORES are those that a rank needs, 0 where its binding is the launcher's, and JOIN_SECONDS is
--join-timeout.
"""

import contextlib
import gc
import hashlib
import importlib
import json
import os
import re
import socket
import subprocess
import sys
import time
import traceback
from collections import ChainMap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

from common import durable
from common.declarations import ROOT, declared
from common.ranks import binding, ending, gpus, machine, meeting, mpi, watchdog
from common.ranks.launcher_variables import Ranks, expect_planned, expect_variables, from_environment, node_name
from common.record import environment
from launch.run import failures

PROGRAM = (sys.executable, "-m", "launch.run.node")
DeviceName = Literal["cpu", "cuda"]
DEVICES: tuple[DeviceName, ...] = ("cpu", "cuda")
IMPORT, RANK = "--import", "--rank"
# The variables by which programs and libraries are found.
PATHS = re.compile(r"PATH|(?:LD|PYTHON)\w+")
MAX_AGE = timedelta(hours=1)
BOOT = Path("/proc/sys/kernel/random/boot_id")
# Before the JSON of an answer, since launchers print lines of their own.
MARKER = "tandem-answer: "
# Some link the library of MPI's C++ bindings too, which is not this one.
RESOLVED = re.compile(r"^\s*libmpi(?!\w*cxx)\w*\.so\S* => (not found|\S+)", re.MULTILINE)


class Answer(TypedDict, total=False):
    """Why a backend cannot train on a node, None where it can, and what is known of the node."""

    cpu: str | None
    cuda: str | None
    # Why it cannot train with --mkl-kernels fast.
    mkl_kernels: str | None
    # Why the backend cannot be imported; it has no key of a device then.
    error: str
    # Why a device does not compute in the precision of the runs.
    precision: dict[DeviceName, str | None]
    # GPUs for all ranks of the node; None where that is not known.
    num_gpus: int | None


class Node(TypedDict):
    """What is found on a node, where it is not of one rank."""

    num_cores: int
    ignored_variables: dict[str, str]
    # As SharedMemory of common/ranks/machine.py.
    shared_memory: tuple[int, int] | None
    # The path of Horovod's MPI library, or `not found`; None where Horovod has none.
    horovod: str | None
    # The model of each GPU, and last the driver's version.
    gpu: list[str]
    num_gpus: int
    # The variables that select GPUs.
    visible: dict[str, str]


class Place(NamedTuple):
    """Where a rank is: the physical cores that it would train on, and the number of those that the launcher has given it."""

    rank: int
    host: str
    node: str
    cores: list[int]
    num_allowed: int
    quota_cores: float | None
    # The version and the path of the MPI that mpi4py loads, or why it loads none.
    mpi: tuple[str, str] | None
    mpi_problem: str | None
    # Of rank 0.
    of_node: Node | None


def answer(value: object) -> None:
    """Prints an answer for the program that asks."""
    print(f"{MARKER}{json.dumps(value)}\n", end="", flush=True)


def be_asked(precision: str, *names: str) -> None:
    """Prints the answers of backends about a precision, as a matrix asks for them."""
    of_node: Answer = {
        "precision": {device: gpus.precision_problem(precision, device) for device in DEVICES},
        "num_gpus": binding.num_gpus_to_share(gpus.count()),
    }
    answer({name: answer | of_node for name, answer in cached_or_asked(names, of_node["num_gpus"]).items()})


def cached_or_asked(names: Sequence[str], num_gpus: int | None) -> dict[str, Answer]:
    """Returns the answers of backends that this node has in its cache, and asks the others. What fails is not cached."""
    file = cache_file(num_gpus)
    answers = read_cached(file)
    if unknown := [name for name in names if name not in answers]:
        answers |= ask(unknown)
        write_cached(file, {name: answer for name, answer in answers.items() if "error" not in answer})
    return {name: answers[name] for name in names}


def cache_file(num_gpus: int | None) -> Path | None:
    """Names the file of answers, which has all in its name that they depend on; None where nothing can be cached.

    That is the boot of the node, its packages, the variables that libraries read, and this code.
    """
    # The cache of this user, which launch/setup.sh uses too.
    home = os.environ.get("HOME")
    base = os.environ.get("XDG_CACHE_HOME") or (home and f"{home}/.cache")
    if not base or not BOOT.exists():
        return None
    described = vars(environment.describe(of_record=False)) | {"variables": environment.recorded(os.environ)}
    code = [path.read_text() for name in ("common", "frameworks") for path in sorted((ROOT / name).rglob("*.py"))]
    # Where this checkout lies changes no answer.
    folders = [folder for folder in sys.path if folder != str(ROOT)]
    paths = {name: value for name, value in os.environ.items() if PATHS.fullmatch(name)}
    parts = (BOOT.read_text(), str(Path(sys.prefix).resolve()), described, code, folders, paths, num_gpus)
    digest = hashlib.sha256(json.dumps(parts, default=vars, sort_keys=True).encode()).hexdigest()
    return Path(base, "tandem", "answers", f"{digest[:16]}.json")


def read_cached(file: Path | None) -> dict[str, Answer]:
    """Reads the answers of a file; returns none where it is missing, unreadable or older than an hour."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if file and 0 <= time.time() - file.stat().st_mtime <= MAX_AGE.total_seconds():
            answers = json.loads(durable.read_bytes(file))
            return answers if isinstance(answers, dict) and all(isinstance(answer, dict) for answer in answers.values()) else {}
    return {}


def write_cached(file: Path | None, answers: dict[str, Answer]) -> None:
    """Writes answers into their file, where that can be done."""
    if file and answers:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            durable.write_text(file, json.dumps(answers))


def ask(names: Sequence[str]) -> dict[str, Answer]:
    """Returns the answers of backends, by the names of their files, about the devices of this node.

    Those of one framework are imported in one process, beside those of the other.
    """
    frameworks = {declared()[name].framework for name in names}
    with ThreadPoolExecutor() as pool:
        answers = pool.map(_ask, ([name for name in names if declared()[name].framework == framework] for framework in frameworks))
        return dict(ChainMap(*answers))


def _ask(names: Sequence[str]) -> dict[str, Answer]:
    """Returns the answers of backends that are imported in one process; in one process each where an import ends it."""
    process = subprocess.run([*PROGRAM, IMPORT, *names], cwd=ROOT, capture_output=True, text=True, check=False)
    if not process.returncode:
        return json.loads(process.stdout.splitlines()[-1])
    if len(names) > 1:
        return dict(ChainMap(*(_ask([name]) for name in names)))
    return {names[0]: {"error": f"its import {failures.describe_exit(process.returncode, process.stderr.splitlines())}"}}


def imported(name: str) -> Answer:
    """Imports the backend in frameworks/NAME.py and returns its answer."""
    try:
        trainer_class = importlib.import_module(f"frameworks.{name}").Trainer
        cpu, cuda = map(trainer_class.device_problem, DEVICES)
        mkl_kernels = trainer_class.mkl_kernels_problem()
    except Exception:
        return {"error": traceback.format_exc().splitlines()[-1]}
    return {"cpu": cpu, "cuda": cuda, "mkl_kernels": mkl_kernels}


def be_rank(argv: list[str]) -> None:
    """Is a rank of a step. `argv`: from CORES on."""
    ranks = None
    try:
        ranks = from_environment()
        expect_planned(ranks)
        expect_variables(argv)
        cores_per_rank, join_seconds = argv
        watchdog.begin(0, ranks.rank, ending.leave_hung, float(join_seconds))
        meeting.agree_on_master(ranks)
        answer(place_of(ranks, int(cores_per_rank)))
    except (Exception, KeyboardInterrupt) as problem:
        ending.leave_failed(problem, *ending.describe_failure(problem, None), ranks)
    ending.leave()


def place_of(ranks: Ranks, cores_per_rank: int) -> Place:
    """Returns the Place of this rank."""
    core_of, cores = binding.core_of_threads(), binding.INHERITED_CORES
    num_allowed = binding.num_cores(cores, core_of)
    if cores_per_rank:
        cores = binding.cores_for(cores, ranks.local_rank, cores_per_rank, core_of)
    problem = mpi.problem()
    return Place(
        ranks.rank, socket.gethostname(), node_name(), sorted({core_of.get(core, core) for core in cores}), num_allowed,
        machine.quota_cores(), None if problem else mpi_library(), problem, None if ranks.rank else describe(),
    )  # fmt: skip


def mpi_library() -> tuple[str, str]:
    """Returns the version and the path of the MPI that mpi4py loads."""
    version = mpi.loaded().Get_library_version().strip("\0 \n").partition("\n")[0]
    with open("/proc/self/maps") as maps:
        paths = sorted({line.split()[-1] for line in maps if "/libmpi" in line})
    return " ".join(version.split()), (paths or ["?"])[0]


def describe() -> Node:
    """Returns the Node on which this runs."""
    num_gpus = gpus.count()
    return {
        "num_cores": environment.describe().num_cores,
        "ignored_variables": binding.ignored_variables({}),
        "shared_memory": machine.shared_memory(),
        "horovod": horovod_mpi(),
        "gpu": gpus.all_models() if num_gpus else [],
        "num_gpus": num_gpus or 0,
        "visible": {name: os.environ[name] for name in binding.VISIBLE_GPUS if name in os.environ},
    }


def horovod_mpi() -> str | None:
    """Returns the path of Horovod's MPI library, or `not found`; None where Horovod is not installed, has no MPI or ldd is missing.

    Its libraries are only resolved: where they do not fit together, importing them may kill.
    """
    if not (spec := find_spec("horovod")) or not spec.origin:
        return None
    libraries = sorted(Path(spec.origin).parent.glob("*/mpi_lib*.so"))
    try:
        process = subprocess.run(["ldd", *libraries], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return next(iter(RESOLVED.findall(process.stdout)), None)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [mode, *names] if mode == IMPORT:
            # As in a rank. The end of the interpreter would look through all of it too.
            gc.disable()
            print(json.dumps({name: imported(name) for name in names}))
            ending.leave()
        case [mode, *arguments] if mode == RANK:
            be_rank(arguments)
        case arguments:
            be_asked(*arguments)

"""On which devices backends can train on the node where this runs.

python -m launch.run.node PRECISION BACKEND… prints the answers of backends as one line of JSON. A node caches them for an hour. What may
end a process has one of its own, also of this program: --import BACKEND… imports backends.
"""

import contextlib
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import time
import traceback
from collections import ChainMap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Literal, TypedDict

from common import durable
from common.declarations import ROOT, declared
from common.ranks import binding, gpus
from common.record import environment
from launch.run import failures, place

PROGRAM = (sys.executable, "-m", "launch.run.node")
DeviceName = Literal["cpu", "cuda"]
DEVICES: tuple[DeviceName, ...] = ("cpu", "cuda")
IMPORT = "--import"
# The variables by which programs and libraries are found.
PATHS = re.compile(r"PATH|(?:LD|PYTHON)\w+")
MAX_AGE = timedelta(hours=1)
BOOT = Path("/proc/sys/kernel/random/boot_id")


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


def main(precision: str, *names: str) -> None:
    """Prints the answers of backends about a precision, as a matrix asks for them."""
    of_node: Answer = {
        "precision": {device: gpus.precision_problem(precision, device) for device in DEVICES},
        "num_gpus": binding.num_gpus_to_share(gpus.count()),
    }
    place.answer({name: answer | of_node for name, answer in cached_or_asked(names, of_node["num_gpus"]).items()})


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


if __name__ == "__main__":
    match sys.argv[1:]:
        case [mode, *names] if mode == IMPORT:
            print(json.dumps({name: imported(name) for name in names}))
        case arguments:
            main(*arguments)

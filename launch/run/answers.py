"""What backends answer on the node where this runs: on which devices they can train. A node caches the answers for an hour.

python -m launch.run.answers [--node] PRECISION BACKEND… prints them as one line of JSON, with --node also what launch/run/node.py finds.
Backends are imported in a process of its own, python -m launch.run.answers --import BACKEND…, which a library may end.
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

from common import cache
from common.declarations import ROOT, declared
from common.ranks import binding, gpus
from common.record import environment
from launch.run import node
from launch.run.node import Node

DeviceName = Literal["cpu", "cuda"]
DEVICES: tuple[DeviceName, ...] = ("cpu", "cuda")
# Before the JSON of the answers, since launchers print lines of their own.
MARKER = "tandem-probe: "
WITH_NODE, IMPORT = "--node", "--import"
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
    node: Node


def main(*arguments: str) -> None:
    """Prints the answers of backends about a precision, as a matrix asks for them: [--node] PRECISION BACKEND…."""
    with_node = arguments[0] == WITH_NODE
    precision, *names = arguments[with_node:]
    of_node: Answer = {
        "precision": {device: gpus.precision_problem(precision, device) for device in DEVICES},
        "num_gpus": binding.num_gpus_to_share(gpus.count()),
    }
    if with_node:
        of_node["node"] = node.describe()
    answers = ask(names) if with_node else cached_or_asked(names, of_node["num_gpus"])
    print(MARKER + json.dumps({name: answer | of_node for name, answer in answers.items()}), flush=True)


def cached_or_asked(names: Sequence[str], num_gpus: int | None) -> dict[str, Answer]:
    """Returns the answers of backends that this node has in its cache, and asks the others. What fails is not cached."""
    file = cache_file(num_gpus)
    files = {name: file and file.with_name(f"{file.stem}-{name}.json") for name in names}
    known: dict[str, Answer] = {name: answer for name, file in files.items() if (answer := read_cached(file))}
    unknown = [name for name in names if name not in known]
    answers = ask(unknown) if unknown else {}
    for name, answer in answers.items():
        if "error" not in answer:
            write_cached(files[name], answer)
    return known | answers


def cache_file(num_gpus: int | None) -> Path | None:
    """Names the file of answers, which has all in its name that they depend on; None where nothing can be cached.

    That is the boot of the node, its packages, the variables that libraries read, and this code.
    """
    folder = cache.folder()
    if not folder or not BOOT.exists():
        return None
    described = vars(environment.describe(of_record=False)) | {"variables": environment.recorded(os.environ)}
    code = [path.read_text() for name in ("common", "frameworks") for path in sorted((ROOT / name).rglob("*.py"))]
    # Where this checkout lies changes no answer.
    places = [place for place in sys.path if place != str(ROOT)]
    paths = {name: value for name, value in os.environ.items() if PATHS.fullmatch(name)}
    parts = (BOOT.read_text(), str(Path(sys.prefix).resolve()), described, code, places, paths, num_gpus)
    digest = hashlib.sha256(json.dumps(parts, default=vars, sort_keys=True).encode()).hexdigest()
    return folder / "answers" / f"{digest[:16]}.json"


def read_cached(file: Path | None) -> Answer | None:
    """Reads the answer of a file; returns None where it is missing, unreadable or older than an hour."""
    with contextlib.suppress(OSError, ValueError):
        if file and 0 <= time.time() - file.stat().st_mtime <= MAX_AGE.total_seconds():
            return json.loads(cache.read(file) or "null")
    return None


def write_cached(file: Path | None, answer: Answer) -> None:
    """Writes an answer into its file and removes old files beside it, where that can be done."""
    if file and answer:
        cache.write(file, json.dumps(answer))
        with contextlib.suppress(OSError):
            for path in file.parent.glob("*.json"):
                if time.time() - path.stat().st_mtime > MAX_AGE.total_seconds():
                    path.unlink(missing_ok=True)


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
    command = [sys.executable, "-m", "launch.run.answers", IMPORT, *names]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if not process.returncode:
        return json.loads(process.stdout.splitlines()[-1])
    if len(names) > 1:
        return dict(ChainMap(*(_ask([name]) for name in names)))
    return {names[0]: {"error": (process.stderr.strip().splitlines() or [f"its import ended with exit status {process.returncode}"])[-1]}}


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
    if sys.argv[1] == IMPORT:
        print(json.dumps({name: imported(name) for name in sys.argv[2:]}))
    else:
        main(*sys.argv[1:])

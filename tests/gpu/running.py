"""Runs of a backend as plain processes or under torchrun, each with a time limit, with its record and what it printed."""

import functools
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from common.backends import chosen
from common.data.sharding import STEPS_VARIABLE
from common.declarations import BASELINE, ROOT, declared
from common.errors import UserError
from launch.run import node, processes, turns

# A launcher around this program must not be taken for that of its runs.
OF_LAUNCHERS = (
    "PMI_", "PMIX_", "SLURM_", "OMPI_", "PALS_", "TANDEM_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
)  # fmt: skip
# A run that starts with less time left would be ended before it has a result.
LEAST_SECONDS = 15.0
PROBE = """
import json, torch
gpu = torch.cuda.is_available()
name = torch.cuda.get_device_name() if gpu else None
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": name}))
"""


class Session(NamedTuple):
    """What all checks share: `folder` to write to, `device`, and time.monotonic() at which all `ends`.

    `seconds`: how long the whole may take.
    `lacks`: {backend: why it cannot run on the device; None where it can}. `about`: one line on the machine.
    """

    folder: Path
    device: str
    seconds: float
    ends: float
    lacks: dict
    about: str

    @classmethod
    def begin(cls, folder, device, seconds, backends=None):
        """The session of this machine. `device`: auto, cpu or cuda; `backends`: names, or None for all. Raises UserError."""
        ends = time.monotonic() + seconds
        for name in filter(lambda name: name.startswith(OF_LAUNCHERS), list(os.environ)):
            del os.environ[name]
        # All losses are compared with those of the baseline.
        names = list(dict.fromkeys([BASELINE, *chosen(backends)])) if backends else list(declared())
        probe = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)
        if probe.returncode:
            raise UserError(f"{sys.executable} cannot import PyTorch; set PYTHON to one that can")
        machine = json.loads(probe.stdout.splitlines()[-1])
        if device == "cuda" and not machine["gpu"]:
            raise UserError("--device cuda, but PyTorch finds no GPU; leave it out for a rehearsal on the CPU")
        device = ("cuda" if machine["gpu"] else "cpu") if device == "auto" else device
        lacks = {name: answer.get("error") or answer[device] for name, answer in node.ask(names).items()}
        about = (
            f"{platform.node()}: {machine['gpu'] or 'no GPU'}, device {device}, Python {platform.python_version()}, "
            f"PyTorch {machine['torch']}, CUDA {machine['cuda']}"
        )
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, device, seconds, ends, lacks, about)

    @property
    def on_gpu(self):
        return self.device == "cuda"

    def expect(self, backend):
        """Skips the check where a backend cannot run here."""
        if reason := self.lacks.get(backend, "left out by --backends"):
            pytest.skip(reason)

    def part(self, share):
        """The session of a part, which may take a share of the whole time."""
        return self._replace(ends=min(self.ends, time.monotonic() + share * self.seconds))

    def limit(self, seconds):
        """The time limit of a run that may take so many seconds. Skips the check where too little time is left."""
        left = self.ends - time.monotonic()
        if left < LEAST_SECONDS:
            pytest.skip("no time left (--minutes)")
        return min(seconds, left)


def train(session, backend, name, *options, num_ranks=1, seconds=120.0, device=None, variables=None, num_steps=None):
    """The record of a run, as it stands in its file, with its keys as attributes. `num_steps`: steps of an epoch, else all.

    Skips the check where its backend refuses to run; raises AssertionError where it fails.
    """
    session.expect(backend)
    program = [sys.executable, "-m", f"frameworks.{backend}"]
    if num_ranks > 1:
        torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}")
        program = [sys.executable, *torchrun, *program[1:]]
    where = ("--results", session.folder / "records", "--machine", "here", "--run-id", name, "--device", device or session.device)
    limited = {STEPS_VARIABLE: str(num_steps)} if num_steps else {}
    status, printed = run(session, name, [*program, *where, *options], seconds, (variables or {}) | limited)
    path = session.folder / "records" / "here" / f"{name}.json"
    error = next((line.removeprefix("error: ") for line in printed.splitlines() if line.startswith("error: ")), None)
    if status == 2 and error:
        pytest.skip(error)
    # Where these tests run there may be no pydantic, which reads records.
    record = json.loads(path.read_text(), object_hook=lambda values: SimpleNamespace(**values)) if path.exists() else None
    completed = status == 0 and record and record.status == "ok"
    assert completed, error or (record and record.error) or f"exit status {status}; see logs/{name}.txt"
    return record


def run(session, name, command, seconds, variables=None):
    """(exit status, what was printed) of a command; it is also in logs/NAME.txt. Raises AssertionError after the time limit.

    Skips the check where the limit was that of the part.
    """
    log = session.folder / "logs" / f"{name}.txt"
    log.parent.mkdir(exist_ok=True)
    limit = session.limit(seconds)
    argv, mark = [str(part) for part in command], f"{session.folder}: {name}"
    environ = {"PYTHONUNBUFFERED": "1"} | (variables or {})
    with log.open("w") as output:
        write = functools.partial(print, file=output, flush=True)
        outcome = turns.alone(processes.run(argv, environ, mark, ROOT, limit, write, write))
    if outcome.timed_out and limit < seconds:
        pytest.skip(f"no time left (--minutes): ended after {limit:.0f} s")
    assert not outcome.timed_out, f"ended after {limit:.0f} s; see logs/{name}.txt"
    return outcome.returncode, log.read_text()

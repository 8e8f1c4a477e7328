"""Ends runs of every backend again and again and counts how: completed, killed by the launcher, crashed or hung, as a table in Markdown.

python -m tests.bench.ends --ranks 4 --num-ends 50 --backends ddp,horovod_tf
"""

import collections
import contextlib
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Annotated

from common import backends
from common.command_line import FROM_1
from tests.bench import forked_ranks, shared
from tests.support.running import BIN, ROOT, environ

# One step of the small Transformer: what is to be seen comes after it.
SHORT = ("--workload", "transformer", "--epochs", "1", "--steps-per-epoch", "1", "--no-stop-at-target", "--no-step-breakdown")
TIME_LIMIT_SECONDS = 180
IN_ONE_PROCESS = ("single", "data_parallel")


@dataclass(frozen=True)
class Arguments:
    """What is ended, and how often."""

    backends: str = backends.ALL
    """Backends, as for launch/matrix.sh."""
    ranks: Annotated[int, FROM_1] = 4
    """Ranks of each run."""
    num_ends: Annotated[int, FROM_1] = 50
    """Runs of each backend."""
    fork: bool = False
    """Fork the ranks from a process that has imported their backend: in a third of the time, but a start that no user sees."""


def run(arguments):
    endings = {name: collections.Counter() for name in backends.chosen(arguments.backends)}
    with tempfile.TemporaryDirectory() as folder:
        servers = [forked_ranks.begin(f"frameworks.{name}", f"{folder}/{name}") for name in endings if arguments.fork]
        # In turns, so that a measurement that is stopped early says something about every backend.
        for number in range(1, arguments.num_ends + 1):
            for backend, counts in endings.items():
                counts[end(backend, arguments, folder)] += 1
                print(f"<!-- end {number}: {backend} {dict(counts)} -->", flush=True)
        for server in servers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server, signal.SIGKILL)
    print(shared.head(("backend", "ends")))
    for backend, counts in endings.items():
        print(shared.row((f"`{backend}`", ", ".join(f"{count} {ending}" for ending, count in sorted(counts.items())))))
    return 0


def end(backend, arguments, folder):
    """How a short run of a backend ended, in words."""
    num_ranks = 1 if backend in IN_ONE_PROCESS else arguments.ranks
    options = (*SHORT, "--results", f"{folder}/records")
    rank = (
        forked_ranks.command(f"{folder}/{backend}", *options)
        if arguments.fork
        else [BIN / "python", "-m", f"frameworks.{backend}", *options]
    )
    command = [BIN / "mpiexec", "-n", num_ranks, *rank]
    process = subprocess.Popen(
        list(map(str, command)),
        cwd=ROOT,
        env=environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=TIME_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return "hung"
    if process.returncode:
        print(printed, flush=True)
    return f"with exit status {process.returncode}{'' if 'record: ' in printed else ' before the record was complete'}"


if __name__ == "__main__":
    shared.main(run, Arguments, __file__, __doc__)

"""Ends runs of every backend again and again and counts how: completed, killed by the launcher, crashed or hung, as a table in Markdown.

python -m tests.bench.ends --ranks 4 --num-ends 50 --backends ddp,horovod_tf
"""

import argparse
import collections
import subprocess
import tempfile

from common import backends
from tests.support.running import BIN, ROOT, environ

# One step of the CNN: what is to be seen comes after it.
SHORT = ("--epochs", "1", "--steps-per-epoch", "1", "--no-stop-at-target", "--no-step-breakdown")
TIME_LIMIT_SECONDS = 180


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ends", description=__doc__.splitlines()[0])
    parser.add_argument("--backends", default=backends.ALL, help="as for launch/matrix.sh (default: all)")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--num-ends", type=int, default=50)
    arguments = parser.parse_args()
    endings = {name: collections.Counter() for name in backends.chosen(arguments.backends)}
    # In turns, so that a measurement that is stopped early says something about every backend.
    for number in range(1, arguments.num_ends + 1):
        for backend, counts in endings.items():
            counts[end(backend, arguments.ranks)] += 1
            print(f"<!-- end {number}: {backend} {dict(counts)} -->", flush=True)
    print("| backend | ends |\n| --- | --- |")
    for backend, counts in endings.items():
        print(f"| `{backend}` | {', '.join(f'{count} {ending}' for ending, count in sorted(counts.items()))} |")


def end(backend, num_ranks):
    """How a short run of a backend ended, in words."""
    workload = ("--workload", "transformer") if backend == "tensor_parallel" else ()
    with tempfile.TemporaryDirectory() as folder:
        command = [BIN / "mpiexec", "-n", str(1 if backend in ("single", "data_parallel") else num_ranks), BIN / "python"]
        command += ["-m", f"frameworks.{backend}", *SHORT, *workload, "--results", folder]
        try:
            done = subprocess.run(command, cwd=ROOT, env=environ(), capture_output=True, text=True, timeout=TIME_LIMIT_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return "hung"
    if done.returncode:
        print(done.stdout + done.stderr, flush=True)
    return f"with exit status {done.returncode}{'' if 'record: ' in done.stdout else ' before the record was complete'}"


if __name__ == "__main__":
    main()

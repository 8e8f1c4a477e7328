"""Ours beside its vendor's way of doing the same work: both measured in turns, in one run.

python -m tests.bench.vendor ddp 2
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.support import small_data
from tests.support.backends import DISTRIBUTED
from tests.support.running import BIN, ROOT, TIME_LIMIT_SECONDS, environ, train

BACKENDS = tuple(name for name in DISTRIBUTED if (Path(__file__).parent / "vendor_loops" / f"{name}.py").exists())


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench.vendor", description=__doc__.splitlines()[0])
    parser.add_argument("backend", choices=BACKENDS)
    parser.add_argument("ranks", type=int)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each (default: 3)")
    parser.add_argument("--epochs", type=int, default=1, help="epochs of each run that count, after one that does not (default: 1)")
    parser.add_argument("--batch-size", type=int, default=32, help="samples a step and rank (default: 32)")
    parser.add_argument(
        "--samples",
        type=int,
        default=16_000,
        help="samples an epoch (default: 16,000, as many steps as Horovod's examples have)",
    )
    parser.add_argument("--allocator", choices=("keep", "system"), default="system", help="the vendor's; ours keeps (default: system)")
    arguments = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        data = small_data.write_digits(Path(folder) / "mnist", arguments.samples)
        shared = ["--batch-size", str(arguments.batch_size), *data]
        for number in range(arguments.rounds):
            ours = rate_of_ours(arguments.backend, arguments.ranks, arguments.epochs, shared)
            vendors = rate_of_vendors(
                arguments.backend, arguments.ranks, [*shared, "--epochs", str(arguments.epochs), "--allocator", arguments.allocator]
            )
            ratios.append(ours / vendors)
            print(f"round {number + 1}  ours: {ours:.0f} samples/s  vendor's: {vendors:.0f} samples/s  ratio: {ratios[-1]:.2f}", flush=True)
    print(f"{arguments.backend}, {arguments.ranks} ranks, {summary(ratios)}")


def rate_of_ours(backend, ranks, epochs, arguments):
    """Samples per second over so many epochs, after one to warm up, as the vendors' loops have it."""
    with tempfile.TemporaryDirectory() as folder:
        settings = (*arguments, "--epochs", str(1 + epochs), "--no-stop-at-target", "--warmup-epochs", "0")
        status, record, _ = train(backend, ranks, Path(folder), *settings)
    if status:
        sys.exit(f"error: ours: {record['error']}")
    return record["samples_per_epoch"] * epochs / sum(record["train_seconds"][1:])


def rate_of_vendors(backend, ranks, arguments):
    command = [BIN / "mpiexec", "-n", str(ranks), BIN / "python", "-m", f"tests.bench.vendor_loops.{backend}", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environ(), capture_output=True, text=True, timeout=TIME_LIMIT_SECONDS, check=False)
    found = rate_in(done.stdout)
    if done.returncode or found is None:
        sys.exit(f"error: the vendor's, exit status {done.returncode}:\n{done.stdout}{done.stderr}")
    return found


def rate_in(output):
    """The samples per second that a vendor's loop printed among other lines, or None."""
    found = re.search(r"^samples_per_second: ([\d.]+)$", output, re.MULTILINE)
    return float(found[1]) if found else None


def summary(ratios):
    return f"ours / vendor's: {median(ratios):.2f} (from {min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()

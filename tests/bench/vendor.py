"""Ours beside its vendor's way of doing the same work: both measured in turns, in one run.

python -m tests.bench.vendor ddp 2
"""

import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tests.bench import shared
from tests.support import small_data
from tests.support.backends import DISTRIBUTED
from tests.support.running import BIN, completed, train

BACKENDS = tuple(name for name in DISTRIBUTED if (Path(__file__).parent / "vendor_loops" / f"{name}.py").exists())


@dataclass(frozen=True)
class Arguments:
    """What is compared, and how often."""

    backend: Annotated[Literal[BACKENDS], tyro.conf.Positional]
    ranks: Annotated[int, tyro.conf.Positional]
    rounds: int = 3
    """Runs of each."""
    epochs: int = 1
    """Epochs of each run that count, after one that does not."""
    batch_size: int = 32
    """Samples a step and rank."""
    samples: int = 16_000
    """Samples an epoch: by default as many steps as Horovod's examples have."""
    allocator: Literal["keep", "system"] = "system"
    """The vendor's; ours keeps."""


def run(arguments):
    with tempfile.TemporaryDirectory() as folder:
        data = small_data.write_digits(Path(folder) / "mnist", arguments.samples)
        options = ("--batch-size", str(arguments.batch_size), *data)
        loops = {"ours": rate_of_ours, "vendor's": rate_of_vendors}
        rates = shared.in_turns(lambda rate_of, _: rate_of(arguments, options), loops, arguments.rounds).values()
    for number, (ours, vendors) in enumerate(zip(*rates, strict=True), 1):
        print(f"round {number}  ours: {ours:.0f} samples/s  vendor's: {vendors:.0f} samples/s  ratio: {ours / vendors:.2f}")
    print(f"{arguments.backend}, {arguments.ranks} ranks, ours / vendor's: {shared.with_range(shared.ratios(*rates))}")


def rate_of_ours(arguments, options):
    """Samples per second over the epochs that count, after one to warm up, as the vendors' loops have it."""
    with tempfile.TemporaryDirectory() as folder:
        settings = (*options, "--epochs", str(1 + arguments.epochs), "--no-stop-at-target", "--warmup-epochs", "0")
        status, record, _ = train(arguments.backend, arguments.ranks, Path(folder), *settings)
    if status:
        sys.exit(f"error: ours: {record['error']}")
    return record["samples_per_epoch"] * arguments.epochs / sum(record["train_seconds"][1:])


def rate_of_vendors(arguments, options):
    program = [BIN / "python", "-m", f"tests.bench.vendor_loops.{arguments.backend}", *options]
    command = [BIN / "mpiexec", "-n", arguments.ranks, *program, "--epochs", arguments.epochs, "--allocator", arguments.allocator]
    done = completed(*command)
    rate = rate_in(done.stdout)
    if done.returncode or rate is None:
        sys.exit(f"error: the vendor's, exit status {done.returncode}:\n{done.stdout}{done.stderr}")
    return rate


def rate_in(output):
    """The samples per second that a vendor's loop printed among other lines, or None."""
    printed = re.search(r"^samples_per_second: ([\d.]+)$", output, re.MULTILINE)
    return float(printed[1]) if printed else None


if __name__ == "__main__":
    shared.main(run, Arguments, __file__, __doc__)

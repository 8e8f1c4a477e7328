"""How much faster one setting is than another: both measured in turns, in one run.

python -m tests.bench.settings ddp 2 "--allocator keep" "--allocator system"
"""

import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tests.bench import shared
from tests.support.running import train


@dataclass(frozen=True)
class Arguments:
    """What is compared."""

    backend: Annotated[str, tyro.conf.Positional]
    ranks: Annotated[int, tyro.conf.Positional]
    first: Annotated[str, tyro.conf.Positional]
    """Settings of a run, in one argument."""
    second: Annotated[str, tyro.conf.Positional]
    """The settings to measure against."""
    rounds: int = 3
    """Runs of each."""


def run(arguments):
    def measure(settings, number):
        with tempfile.TemporaryDirectory() as folder:
            fixed = ("--epochs", "3", "--no-stop-at-target", *shlex.split(settings))
            status, record, _ = train(arguments.backend, arguments.ranks, Path(folder), *fixed)
        if status:
            sys.exit(f"error: {settings}: {record['error']}")
        print(f"round {number + 1}  {settings}: {record['samples_per_second']:.0f} samples/s", flush=True)
        return record["samples_per_second"]

    both = {settings: lambda number, settings=settings: measure(settings, number) for settings in (arguments.first, arguments.second)}
    ratios = shared.ratios(*shared.in_turns(both, arguments.rounds).values())
    print(f"{arguments.first} over {arguments.second}: {shared.with_range(ratios)}")


if __name__ == "__main__":
    shared.main(run, Arguments, __file__, __doc__)

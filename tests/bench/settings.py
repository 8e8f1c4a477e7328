"""How much faster one setting is than another: both measured in turns, in one run.

python -m tests.bench.settings ddp 2 "--allocator keep" "--allocator system"
"""

import argparse
import shlex
import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.support.running import train


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench.settings", description=__doc__.splitlines()[0])
    parser.add_argument("backend")
    parser.add_argument("ranks", type=int)
    parser.add_argument("first", help="settings of a run, in one argument")
    parser.add_argument("second", help="the settings to measure against")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each (default: 3)")
    arguments = parser.parse_args()
    rates = {arguments.first: [], arguments.second: []}
    for number in range(arguments.rounds):
        for settings, found in rates.items():
            with tempfile.TemporaryDirectory() as folder:
                fixed = ("--epochs", "3", "--no-stop-at-target", *shlex.split(settings))
                status, record, _ = train(arguments.backend, arguments.ranks, Path(folder), *fixed)
            if status:
                sys.exit(f"error: {settings}: {record['error']}")
            found.append(record["samples_per_second"])
            print(f"round {number + 1}  {settings}: {found[-1]:.0f} samples/s", flush=True)
    ratios = [first / second for first, second in zip(*rates.values(), strict=True)]
    print(f"{arguments.first} over {arguments.second}: {median(ratios):.2f} (from {min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()

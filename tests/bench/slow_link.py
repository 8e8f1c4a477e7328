"""What a slow network does to each backend: samples/s on two hosts of one rank each, as a table in Markdown.

python -m tests.bench.slow_link 1gbit 200mbit
"""

import argparse
import contextlib
import tempfile
from pathlib import Path

from tests.support import two_hosts
from tests.support.backends import LAUNCHED
from tests.support.running import copied

FAST = "no limit"
PLAIN = ("--no-stop-at-target", "--no-step-breakdown")


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench.slow_link", description=__doc__.splitlines()[0])
    parser.add_argument("rates", nargs="+", help="rates of the link, as tc writes them")
    parser.add_argument("--workload", default="cnn")
    parser.add_argument("--epochs", default="3")
    arguments = parser.parse_args()
    rates = (FAST, *arguments.rates)
    print("| backend | " + " | ".join(f"{rate}: samples/s, of {FAST}" for rate in rates) + " |\n| --- " + "| --- " * len(rates) + "|")
    with tempfile.TemporaryDirectory() as folder, two_hosts.joined() as hosts:
        checkout = copied(Path(folder))
        for backend in LAUNCHED:
            measured = []
            for rate in rates:
                results = Path(folder) / f"{backend}-{rate}"
                # Each host takes this machine for its own, and would bind its rank to the same core.
                settings = ("--workloads", arguments.workload, "--epochs", arguments.epochs, "--no-bind", *PLAIN)
                with contextlib.nullcontext() if rate == FAST else two_hosts.narrowed(rate):
                    record = two_hosts.matrix(hosts, checkout, results, backend, *settings)
                measured.append(record["samples_per_second"])
            cells = [f"{rate:.0f} ({rate / measured[0]:.2f})" for rate in measured]
            print(f"| {backend} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

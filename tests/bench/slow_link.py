"""What a slow network does to each backend: samples/s on two hosts of one rank each, as a table in Markdown.

python -m tests.bench.slow_link 1gbit 200mbit
"""

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tests.bench import shared
from tests.support import two_hosts
from tests.support.backends import LAUNCHED
from tests.support.running import copied

FAST = "no limit"
PLAIN = ("--no-stop-at-target", "--no-step-breakdown")


@dataclass(frozen=True)
class Arguments:
    """What trains over which links."""

    rates: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Rates of the link, as tc writes them."""
    workload: str = "cnn"
    epochs: str = "3"


def run(arguments):
    rates = (FAST, *arguments.rates)
    print(shared.head(("backend", *(f"{rate}: samples/s, of {FAST}" for rate in rates))))
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
            print(shared.row((backend, *(f"{rate:.0f} ({rate / measured[0]:.2f})" for rate in measured))), flush=True)


if __name__ == "__main__":
    shared.main(run, Arguments, __file__, __doc__)

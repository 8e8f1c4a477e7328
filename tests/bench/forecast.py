"""Forecasts over links that were not measured, beside real runs over them, as a table in Markdown.

Two hosts of one rank each train over a link without a limit and at 1 Gbit/s; from these two runs the steps at other rates are forecast, and
then measured. Records stay in a folder, and what is there is not run again: the bench can be done in pieces.

python -m tests.bench.forecast results/forecast --backends ddp
"""

import contextlib
import functools
import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from common.record import records
from launch.forecast.network import algorithms
from launch.forecast.network.messages import fitted, of_messages
from launch.forecast.scaling import measured, model
from tests.bench import shared
from tests.support import two_hosts
from tests.support.backends import LAUNCHED
from tests.support.running import copied

FAST, SLOW = "none", "1gbit"
# Bytes on the wire for each byte that is sent: frames of 1,514 bytes with 1,448 of payload (Ethernet, IPv4, TCP with timestamps).
FRAMES = 1514 / 1448
BITS = {"gbit": 1e9, "mbit": 1e6}
COLUMNS = ("backend", "workload", "link", "predicted (ms)", "measured (ms)", "error", "exposed share")


def bytes_per_second(rate):
    """The bandwidth of a rate as tc writes it."""
    number, unit = re.fullmatch(r"(\d+)(gbit|mbit)", rate).groups()
    return int(number) * BITS[unit] / 8


def record(folder, setting, backend, workload, rate):
    """The record of a run over a link; runs it if the folder does not have it."""
    kept = folder / f"{workload}-{backend}-{rate}.json"
    if not kept.exists():
        hosts, checkout, batch_size = setting()
        results = folder / f"{kept.stem}.runs"
        # Of a run that was interrupted.
        shutil.rmtree(results, ignore_errors=True)
        # Each host takes this machine for its own, and would bind its rank to the same core.
        settings = ["--workloads", workload, "--epochs", "1", "--batch-size", batch_size, "--no-bind", "--no-stop-at-target"]
        settings += [] if rate in (FAST, SLOW) else ["--no-step-breakdown"]
        with contextlib.nullcontext() if rate == FAST else two_hosts.narrowed(rate):
            trained = two_hosts.matrix(hosts, checkout, results, backend, *settings)
        kept.write_text(json.dumps(trained))
        shutil.rmtree(results)
    return records.read(kept)


def step_seconds(run):
    """The median step: an epoch is short, and its first step is long."""
    return float(np.median(run.step_seconds))


def size(run):
    """The Size of one run, whose step is the median."""
    plain = {(run.backend, run.num_ranks): measured.plain_of(run)}
    return measured.of([run], plain)._replace(step_seconds=step_seconds(run))


def fit(fast, slow, slow_bytes_per_second, bytes_per_second, names):
    """The Model of a step over a link of a bandwidth, from the Sizes of one backend over a fast link and over a slow one.

    A byte takes the longer of its time on the wire and of its time through the library, which the links that were measured show: the slow
    one for links that are slower still, the fast one for others. Latency is that of the slow link. What steps over both links take beside
    the model is their mean.
    """
    link_of_fast, link_of_slow = (message(size, names[0]) for size in (fast, slow))
    library = link_of_slow if bytes_per_second <= slow_bytes_per_second else link_of_fast
    beta = max(library.beta_seconds_per_byte, FRAMES / bytes_per_second)
    compute = (fast.compute_seconds + slow.compute_seconds) / 2
    models = ((fast, model_of(fast, compute, link_of_fast, names)), (slow, model_of(slow, compute, link_of_slow, names)))
    unexplained_seconds = sum(size.step_seconds - over_it.step_seconds(size.num_ranks) for size, over_it in models) / len(models)
    over_link = model_of(slow, compute, link_of_slow._replace(beta_seconds_per_byte=beta), names)
    return over_link._replace(unexplained_seconds=(unexplained_seconds, unexplained_seconds))


def message(size, name):
    """The Regime of the largest messages between two nodes."""
    regimes, _ = fitted(size.plain)
    return of_messages(regimes, name, size.num_ranks, size.num_ranks // size.num_nodes)[-1]._replace(from_bytes=0)


def model_of(size, compute, link, names):
    machine = algorithms.Machine(size.num_ranks // size.num_nodes, (link,), (link,))
    return model.Model(machine, names, size.data_wait_seconds, lambda *_: compute, size.exchanges, size.slowest)


def rows(folder, setting, backend, workload, rates):
    """The cells of the table for each rate."""
    runs = {rate: record(folder, setting, backend, workload, rate) for rate in (FAST, SLOW, *rates)}
    fast, slow = size(runs[FAST]), size(runs[SLOW])
    for rate in (SLOW, *rates):
        names = algorithms.BY_TRANSPORT[runs[SLOW].transport]
        of_link = fit(fast, slow, bytes_per_second(SLOW), bytes_per_second(rate), names)
        parts, actual = of_link.parts(2), step_seconds(runs[rate])
        error = f"{100 * (parts.step / actual - 1):+.0f} %" + (" (fitted)" if rate == SLOW else "")
        milliseconds = (f"{1000 * seconds:.1f}" for seconds in (parts.step, actual))
        yield backend, workload, rate, *milliseconds, error, f"{100 * parts.exposed / parts.step:.0f} %"


@dataclass(frozen=True)
class Arguments:
    """What is forecast; names are separated by commas."""

    folder: Annotated[Path, tyro.conf.Positional]
    """Where the records are kept."""
    backends: str = ",".join(LAUNCHED[:5])
    workloads: str = "cnn,transformer"
    rates: str = "200mbit,50mbit"
    """Rates of the link that are forecast, as tc writes them."""
    batch_size: str = "32"
    """Samples of a rank: fewer steps in an epoch than by default."""


def run(arguments):
    arguments.folder.mkdir(parents=True, exist_ok=True)
    folder = arguments.folder.resolve()
    print(shared.head(COLUMNS), flush=True)
    with contextlib.ExitStack() as stack:

        @functools.cache
        def setting():
            # Neither hosts nor a copy are made where every record is there.
            hosts, scratch = stack.enter_context(two_hosts.joined()), stack.enter_context(tempfile.TemporaryDirectory())
            return hosts, copied(Path(scratch)), arguments.batch_size

        for backend in arguments.backends.split(","):
            for workload in arguments.workloads.split(","):
                for cells in rows(folder, setting, backend, workload, arguments.rates.split(",")):
                    print(shared.row(cells), flush=True)


if __name__ == "__main__":
    shared.main(run, Arguments, __file__, __doc__)

"""Measures the matrix products of the libraries at hand, the fastest of which is the limit of the machine.

A matrix does so where its ranks run, unless one of the last hour did so there (launch/run/kept.py):
python -m launch.run.products PRECISION DEVICE THREADS CORES prints one line of JSON.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from rich.console import Console

from common.backends import ROOT
from common.config import cores_per_rank
from common.errors import UserError
from common.process import binding, inherited
from launch.launchers.commands import THREADS_VARIABLE, Launcher
from launch.run import available, kept, kept_products, library_products
from launch.run.kept_products import Measured, Products
from launch.run.plan import Job

# Imports from a parallel file system may take minutes.
LIBRARY_SECONDS = 180.0
ONEDNN_VERSION = re.compile(r"onednn_verbose,.*oneDNN v([\d.]+)")
ONEDNN_INSTRUCTION_SET = re.compile(r"onednn_verbose,.*cpu,isa:(.+)")


def measure(jobs: Sequence[Job], launcher: Launcher) -> Measured:
    """Measures where the first of the jobs runs, whose settings all share. Prints why nothing is measured, which stops no matrix.

    Without jobs there is nothing to measure for.
    """
    if not jobs:
        return Measured({}, None)
    job = jobs[0]
    settings = job.settings
    arguments = (settings.precision, settings.device, str(settings.threads), str(cores_per_rank(settings)))
    program = (*launcher.python, "-m", "launch.run.products", *arguments)
    elsewhere = available.runs_elsewhere(jobs, launcher)
    try:
        with Console(stderr=True).status("measuring how fast this machine computes"):
            return Measured(**available.printed_by(program, job, launcher, elsewhere, "measurement of matrix products"))
    except UserError as problem:
        print(f"the peak is that of each run's own framework: {problem}", file=sys.stderr)
        return Measured({}, None)


def main(precision: str, device: str, threads: str, num_cores: str) -> None:
    """Prints the products of all libraries on the cores of this node's first rank, as they are kept or as they are measured now."""
    binding.bind(binding.cores_for(inherited.CORES, 0, int(num_cores), binding.core_of_threads()))
    environ = inherited.without_owned(os.environ) | {THREADS_VARIABLE: threads, "ONEDNN_VERBOSE": "1"}
    arguments = (precision, device, threads)
    file = kept_products.file_for(arguments, environ)
    products = kept_products.read(file)
    if not products:
        products = measured_in(environ, arguments)
        kept.write(file, products)
    print(available.MARKER + json.dumps(Measured(products, file and str(file))._asdict()), flush=True)


def measured_in(environ: Mapping[str, str], arguments: Sequence[str]) -> Products:
    """Measures the products of all libraries, with these variables; without a library that fails or takes too long."""
    measured: Products = {}
    for library in library_products.LIBRARIES:
        command = [sys.executable, "-m", library_products.__name__, library, *arguments]
        try:
            process = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True, timeout=LIBRARY_SECONDS)
        except subprocess.SubprocessError:
            continue
        measured |= products_of(process.stdout)
    measured_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {name: product | {"measured_at": measured_at} for name, product in measured.items()}


def products_of(output: str) -> Products:
    """Reads products from the output of launch/run/library_products.py, with oneDNN as the library behind those without one if it ran."""
    marker = library_products.MARKER
    products: Products = next((json.loads(line.partition(marker)[2]) for line in output.splitlines() if marker in line), {})
    version, instruction_set = ONEDNN_VERSION.search(output), ONEDNN_INSTRUCTION_SET.search(output)
    onednn = {"library": f"oneDNN {version[1]}", "instruction_set": instruction_set and instruction_set[1].strip()} if version else {}
    return {name: product if product["library"] else product | onednn for name, product in products.items()}


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Checks which backends can run here."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from common.backends import ROOT, file_of, needs_mpi
from launch.launchers.commands import WITHOUT_MPI


def unavailable(names, launcher):
    """{backend: reason why it cannot run here}. Imports each backend in its own process."""

    def reason(name):
        if launcher in WITHOUT_MPI and needs_mpi(name):
            return f"it needs MPI, which {launcher} does not provide; use an MPI launcher"
        probe = subprocess.run(
            [sys.executable, "-c", f"import frameworks.{file_of(name)}"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return probe.stderr.strip().splitlines()[-1] if probe.returncode else None

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return {name: found for name, found in zip(names, pool.map(reason, names), strict=True) if found}

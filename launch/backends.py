"""Which backends there are, and which of them can run here."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from common import variants
from common.config import Settings
from common.errors import UserError
from common.records import ROOT
from launch import launchers
from launch.plan import BASELINE

# What the backends of one framework share ends like this; every other file of frameworks/ is a backend.
SHARED = ("__init__", "_side")


def every():
    """The names of all backends, the baseline first."""
    names = [path.stem for path in (ROOT / "frameworks").glob("*.py") if not path.stem.endswith(SHARED)]
    return sorted(names, key=lambda name: (name != BASELINE, name))


def chosen(text):
    """The backends named in `text`, separated by commas; all there are for None. Raises UserError for an unknown one.

    A variant is named BACKEND@VALUE, but for the default one, whose name is the backend's.
    """
    names = every() if text is None else [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if variants.file_of(name) not in every():
            raise UserError(f"there is no backend {name!r}; choose from: {', '.join(every())}")
    return [variants.name_of(variants.file_of(name), variants.settings_of(name, Settings())) for name in names]


def unavailable(names, launcher):
    """{backend: why it cannot run here}, found by importing each one in a process of its own."""

    def why(name):
        if launcher in launchers.WITHOUT_MPI and launchers.needs_mpi(name):
            return f"it needs MPI, which {launcher} does not start; use an MPI launcher"
        probe = subprocess.run(
            [sys.executable, "-c", f"import frameworks.{variants.file_of(name)}"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return probe.stderr.strip().splitlines()[-1] if probe.returncode else None

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return {name: reason for name, reason in zip(names, pool.map(why, names), strict=True) if reason}

"""The modules and the environment that were loaded when launch/setup.sh ran, as a job loads them again."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from common.declarations import ROOT

# Of the environment, else of a site's Python.
FILES = (ROOT / ".venv" / "tandem-modules", ROOT / ".light" / "modules")
TITLE = "# Loaded when launch/setup.sh ran:"


def noted(files: Iterable[Path]) -> dict[str, str]:
    """Returns the variables that the set-up has noted; none without a set-up."""
    path = next((path for path in files if path.exists()), None)
    lines = path.read_text().splitlines() if path else []
    return dict(line.split("=", 1) for line in lines if "=" in line)


def prologue(variables: Mapping[str, str]) -> str:
    """Returns lines of bash that load what these variables name; empty where they name nothing."""
    modules = [name for name in variables.get("LOADEDMODULES", "").split(":") if name]
    lines = [f"module load {shlex.join(modules)}"] if modules else []
    for name in ("CONDA_PREFIX", "VIRTUAL_ENV"):
        if folder := variables.get(name):
            # The function `conda` is not there in every shell.
            lines.append(f"export {name}={shlex.quote(folder)} PATH={shlex.quote(folder + '/bin')}:$PATH")
    return "\n".join([TITLE, *lines]) if lines else ""

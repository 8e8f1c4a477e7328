"""A site that has a Python, a prologue and variables of its own around each rank, and what records of runs there have."""

import shlex

from tests.support.running import BIN

TEXT = """python = ["env", "OMP_SITE=its", "{python}"]
prologue = \"\"\"export OMP_FOLDER={folder}\"\"\"
[variables]
HOROVOD_CYCLE_TIME = "7"
"""


def write(folder):
    """Writes a machine file into a folder, whose name may be one that a shell would take apart; returns the option that names it."""
    path = folder / "site.toml"
    path.write_text(TEXT.format(python=BIN / "python", folder=shlex.quote(str(folder))))
    return "--machine-file", path


def expect(record, folder):
    """A record has what the machine file of this folder puts around a rank, and of the arguments of a rank none is the matrix's own."""
    variables = record["environment"]["variables"]
    expected = {"OMP_SITE": "its", "OMP_FOLDER": str(folder), "HOROVOD_CYCLE_TIME": "7"}
    assert {name: variables.get(name) for name in expected} == expected
    assert "--expect-variables" not in record["command"]

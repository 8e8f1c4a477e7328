"""ReFrame, really run, on a system with a partition of this machine and one of Slurm."""

import shutil

from tests.support.running import ROOT, completed

# Of ReFrame's schedulers for Slurm, `squeue` is the one that needs no accounting.
CONFIGURATION = """
site_configuration = {
    "systems": [{
        "name": "here",
        "hostnames": [".*"],
        "partitions": [
            {"name": "local", "scheduler": "local", "launcher": "local", "environs": ["plain"]},
            {"name": "slurm", "scheduler": "squeue", "launcher": "srun", "environs": ["plain"]},
        ],
    }],
    "environments": [{"name": "plain"}],
}
"""


def program():
    """The reframe that .ci/run has installed, else that of the search path; None where there is none."""
    return shutil.which("reframe", path=ROOT / ".reframe" / "bin") or shutil.which("reframe")


def why_not():
    """Why ReFrame cannot be run here; None where it can."""
    return None if program() else "there is no reframe here; environment.yml names the version"


def run(test, folder, partition, *options, variables=None):
    """The CompletedProcess of a file of tests on a partition. What ReFrame and the tests keep is in the folder, which is new."""
    folder.mkdir()
    settings = folder / "settings.py"
    settings.write_text(CONFIGURATION)
    command = [program(), "-C", settings, "-c", test, "--prefix", folder, "--system", f"here:{partition}", "--nocolor", "--run"]
    home = {"HOME": str(folder)}
    return completed(*command, *options, cwd=folder, variables=home | (variables or {}), seconds=1500)

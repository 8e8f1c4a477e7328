"""A PATH without the programs of Debian packages, so that a machine that has them is as one without: python -m tests.support.bare_path
FOLDER PACKAGE… links all other programs of PATH into a folder."""

import os
import subprocess
import sys
from pathlib import Path


def fill(folder: Path, packages: list[str]) -> None:
    """Links every program of PATH that is of none of these packages, by whatever name."""
    # It lists those of the installed ones, and fails for the others.
    listed = subprocess.run(["dpkg", "-L", *packages], capture_output=True, text=True, check=False).stdout
    hidden = set(map(os.path.realpath, listed.splitlines()))
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            link = folder / program.name
            if os.path.realpath(program) not in hidden and not link.is_symlink():
                link.symlink_to(program.absolute())


if __name__ == "__main__":
    fill(Path(sys.argv[1]), sys.argv[2:])

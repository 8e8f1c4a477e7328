"""Prints the MPI that mpi4py loads, as JSON, and starts it: python -m launch.run.start_mpi.

launch/run/node.py runs this in a process of its own, which MPI may end when it starts.
"""

import json

from common.process import mpi
from launch.run.answers import Mpi


def describe() -> Mpi:
    """Loads the MPI of mpi4py, which has no problem so far."""
    version = mpi.loaded().Get_library_version().strip("\0 \n").partition("\n")[0]
    with open("/proc/self/maps") as maps:
        paths = sorted({line.split()[-1] for line in maps if "/libmpi" in line})
    return {"version": " ".join(version.split()), "path": (paths or ["?"])[0], "problem": None}


if __name__ == "__main__":
    print(json.dumps(describe()), flush=True)
    mpi.loaded().Init()

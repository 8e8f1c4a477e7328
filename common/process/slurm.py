"""What Slurm tells: how srun lets ranks find each other, and where those of a step can meet without MPI."""

import os
import re
import subprocess

# Set by whoever chooses for srun, and by srun for its ranks; not for `none`.
MPI_TYPE = "SLURM_MPI_TYPE"
LISTED = re.compile(r"^(?:srun: |\s+)(\w+)$", re.MULTILINE)
# Below those that Linux gives to whoever asks.
PORTS = range(10_000, 30_000)


def mpi_types():
    """What srun's --mpi may be here; none where srun does not tell."""
    try:
        listed = subprocess.run(["srun", "--mpi=list"], capture_output=True, text=True, check=False, timeout=30)
    except FileNotFoundError:
        return []
    return LISTED.findall(listed.stdout + listed.stderr)


def advice(mpi_type):
    """What to do where ranks did not find each other by this value of srun's --mpi."""
    offered = [name for name in mpi_types() if name != mpi_type]
    return (
        f"srun --mpi={mpi_type} was to join the ranks, and offers {', '.join(offered) or 'nothing else'}; choose what their MPI speaks: "
        f'mpi = "…" in the machine file, or {MPI_TYPE}'
    )


def first_host(node_list):
    """The first host of a list such as `n[1-4,7],m1`."""
    return re.sub(r"\[(\d+)[^]]*\]", r"\1", node_list).partition(",")[0]


def meeting_place():
    """Returns (host of rank 0, port) of the step of this process, the same on every rank; None where Slurm does not tell.

    Steps of a job have different ports. Nobody has looked whether the port is free.
    """
    # Ranks that are laid out by a list of nodes may begin on any.
    if "SLURM_STEP_NODELIST" not in os.environ or os.environ.get("SLURM_DISTRIBUTION") == "arbitrary":
        return None
    number = int(os.environ["SLURM_JOB_ID"]) * 1009 + int(os.environ["SLURM_STEP_ID"])
    return first_host(os.environ["SLURM_STEP_NODELIST"]), PORTS[number % len(PORTS)]

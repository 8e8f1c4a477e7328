"""Refuses ranks on several nodes whose names the launcher does not know: it would start them all on one."""

import os
from collections.abc import Mapping, Sequence
from shutil import which
from typing import NamedTuple

# Options and variables by which launchers outside a batch system are given the nodes.
NODES_OPTIONS = ("f", "H", "host", "hosts", "hostfile", "machinefile", "hostlist")
NODES_VARIABLES = ("HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE", "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")


class BatchSystem(NamedTuple):
    """A batch system: its name, the variables that are set inside a job of it, and what to do there."""

    name: str
    variables: tuple[str, ...]
    remedy: str


# The first one whose variables are all set counts.
BATCH_SYSTEMS = (
    BatchSystem("Slurm", ("SLURM_JOB_ID",), "put srun into PATH, or give --hosts FILE with the nodes of $SLURM_JOB_NODELIST"),
    BatchSystem("PBS", ("PBS_JOBID",), 'give --hosts "$PBS_NODEFILE"; where the site has PALS, load its module'),
    BatchSystem("LSF", ("LSB_JOBID",), 'give --hosts "$LSB_DJOB_HOSTFILE"; jsrun is not among the launchers'),
    BatchSystem("Flux", ("FLUX_URI",), "give --hosts FILE with the nodes of the job; flux run is not among the launchers"),
    BatchSystem("OAR", ("OAR_JOB_ID",), 'give --hosts "$OAR_NODEFILE"'),
    BatchSystem("Grid Engine", ("PE_HOSTFILE",), "give --hosts FILE with the first words of the lines of $PE_HOSTFILE"),
)
OUTSIDE = "list them with --hosts FILE, or run inside an allocation of Slurm or of PBS with PALS"


def batch_system(environ: Mapping[str, str]) -> BatchSystem | None:
    """Returns the batch system around this process."""
    return next((system for system in BATCH_SYSTEMS if all(map(environ.get, system.variables))), None)


def problem(num_nodes: int, launcher: str, arguments: Sequence[str], environ: Mapping[str, str] | None = None) -> str | None:
    """Returns why a launcher that is given no nodes cannot start ranks on so many; None if it can."""
    environ = os.environ if environ is None else environ
    system = batch_system(environ)
    # Hydra and Open MPI start their daemons by srun.
    knows_nodes = bool(system and system.name == "Slurm" and which("srun"))
    given = any(map(environ.get, NODES_VARIABLES)) or any(
        argument.lstrip("-").partition("=")[0] in NODES_OPTIONS for argument in arguments if argument.startswith("-")
    )
    if num_nodes == 1 or knows_nodes or given:
        return None
    where, remedy = (f" in this job of {system.name}", system.remedy) if system else ("", OUTSIDE)
    return f"{num_nodes} nodes are planned, and {launcher} knows none{where}: all ranks would be on one; {remedy}"

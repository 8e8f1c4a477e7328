"""Job -> the command that starts it: one small pure function per launcher."""

from pathlib import Path
from typing import NamedTuple

from common import variants
from common.config import as_arguments
from common.errors import UserError

VENV_BIN = Path(".venv/bin")
# Where torchrun's agents on several nodes meet, on the first one.
RENDEZVOUS_PORT = 29400


class Start(NamedTuple):
    """What a launcher needs to know: its own executable, and what it is to start where."""

    executable: str
    num_ranks: int
    ranks_per_node: int
    threads: int
    # The argv of a rank, which begins with Python.
    program: tuple[str, ...]
    # For every rank.
    variables: dict[str, str]
    # A file with the name of a node on each line; None: the launcher knows its nodes.
    hosts: str | None = None
    # For torchrun on several nodes: the launcher that starts one on each and its executable, and the node where they meet.
    carrier: tuple[str, str] | None = None
    first_node: str | None = None

    @property
    def num_nodes(self):
        return -(-self.num_ranks // self.ranks_per_node)


class Launcher(NamedTuple):
    """The launcher in use: its name, how it is typed in the checkout, and what it starts all ranks with."""

    name: str
    executable: str
    variables: dict[str, str] = {}  # noqa: RUF012
    hosts: str | None = None
    carrier: tuple[str, str] | None = None
    first_node: str | None = None


def aprun(start):
    """ALPS, on Cray XC machines."""
    placing = ["-n", str(start.num_ranks), "-N", str(start.ranks_per_node), "--cc", "depth", "-d", str(start.threads)]
    nodes = ["-L", ",".join(hosts_in(start.hosts))] if start.hosts else []
    return [start.executable, *placing, *nodes, *_set("-e", start), *start.program]


def pals(start):
    """The mpiexec of HPE Cray PALS, as at ALCF. It refuses the options of Open MPI and of Hydra."""
    placing = ["-n", str(start.num_ranks), "--ppn", str(start.ranks_per_node), "--depth", str(start.threads), "--cpu-bind", "depth"]
    return [start.executable, *placing, *_nodes("--hostfile", start), *_set("--env", start), *start.program]


def mpich(start):
    """Hydra, the mpiexec of MPICH. The ranks bind themselves to cores."""
    placing = ["-n", str(start.num_ranks), "-ppn", str(start.ranks_per_node), "-bind-to", "none"]
    return [start.executable, *placing, *_nodes("-f", start), *_genv(start.variables), *start.program]


def intel(start):
    """Intel MPI's mpiexec, a Hydra that binds as a variable says. The ranks bind themselves to cores."""
    placing = ["-n", str(start.num_ranks), "-ppn", str(start.ranks_per_node), *_genv({"I_MPI_PIN": "0"})]
    return [start.executable, *placing, *_nodes("-f", start), *_genv(start.variables), *start.program]


def openmpi(start):
    """Open MPI's mpiexec. More ranks than slots are allowed, and noted in the record; the ranks bind themselves."""
    placing = ["-n", str(start.num_ranks), "--map-by", f"ppr:{start.ranks_per_node}:node:OVERSUBSCRIBE", "--bind-to", "none"]
    return [start.executable, *placing, *_nodes("--hostfile", start), *_set("-x", start), *start.program]


def srun(start):
    """Slurm's srun, which passes on the variables that it has itself. PMI-2 is what MPICH and Horovod on it understand.

    By itself it would leave the other ranks waiting for one that has failed.
    """
    placing = [
        f"--nodes={start.num_nodes}", f"--ntasks={start.num_ranks}", f"--ntasks-per-node={start.ranks_per_node}",
        f"--cpus-per-task={start.threads}", "--cpu-bind=cores", "--mpi=pmi2", "--kill-on-bad-exit=1",
    ]  # fmt: skip
    return [start.executable, *placing, *_nodes("--nodefile", start), *start.program]


def torchrun(start):
    """PyTorch's torchrun, which starts no MPI. On several nodes another launcher starts one on each, and they meet on the first."""
    agent = [start.executable, f"--nproc-per-node={start.ranks_per_node}"]
    if start.num_nodes == 1:
        return [*agent, "--standalone", *start.program[1:]]
    if start.num_ranks % start.ranks_per_node:
        raise UserError(
            f"torchrun starts the same number of ranks on each node, and {start.num_ranks} are no multiple of {start.ranks_per_node}"
        )
    if start.carrier is None or start.first_node is None:
        raise UserError(
            f"{start.num_ranks} ranks, {start.ranks_per_node} on a node, are {start.num_nodes} nodes for torchrun; "
            "name them with --hosts FILE, or call from inside an allocation of Slurm or PBS"
        )
    agent += [f"--nnodes={start.num_nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={start.first_node}:{RENDEZVOUS_PORT}"]
    name, executable = start.carrier
    carried = start._replace(
        executable=executable, num_ranks=start.num_nodes, ranks_per_node=1, threads=start.threads * start.ranks_per_node,
        program=(*agent, *start.program[1:]),
    )  # fmt: skip
    return LAUNCHERS[name](carried)


def _nodes(option, start):
    """The option that takes a file with the names of the nodes, where there is one."""
    return [option, start.hosts] if start.hosts else []


def _set(option, start):
    """The option that sets a variable on every rank, for each."""
    return [part for name, value in start.variables.items() for part in (option, f"{name}={value}")]


def _genv(variables):
    """Hydra's option that sets a variable on every rank, for each."""
    return [part for variable in variables.items() for part in ("-genv", *variable)]


def hosts_in(path):
    """The names of the nodes in a file, one a line, what stands behind a name left out. Raises UserError where there are none."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError as problem:
        raise UserError(f"{path}: {problem.strerror}; --hosts takes a file with the name of a node on each line") from None
    names = list(dict.fromkeys(line.split("#")[0].split()[0].split(":")[0] for line in lines if line.split("#")[0].strip()))
    if not names:
        raise UserError(f"{path} names no node; write one on each line")
    return names


LAUNCHERS = {one.__name__: one for one in (mpich, openmpi, intel, pals, aprun, srun, torchrun)}
WITHOUT_MPI = {"torchrun"}


def needs_mpi(backend):
    """Whether a backend exchanges over MPI from the start: Horovod does."""
    return backend.startswith("horovod")


def command(job, launcher):
    """The argv of a job, and the variables it needs, for the checkout's top folder."""
    variables = {"OMP_NUM_THREADS": str(job.settings.threads)} | launcher.variables
    start = Start(
        executable=launcher.executable,
        num_ranks=job.ranks,
        ranks_per_node=job.ranks_per_node,
        threads=job.settings.threads,
        program=(str(VENV_BIN / "python"), "-m", f"frameworks.{variants.file_of(job.backend)}", *as_arguments(job.settings)),
        variables=variables,
        hosts=launcher.hosts,
        carrier=launcher.carrier,
        first_node=launcher.first_node,
    )
    return LAUNCHERS[launcher.name](start), variables

"""The launchers: one row each in LAUNCHERS, and the command that follows from it."""

import os
import re
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from common import declarations
from common.errors import UserError
from common.ranks import slurm
from common.ranks.launcher_variables import ALPS_RANK, OPEN_MPI, PALS, PMI, SLURM, TORCHRUN, Source
from launch.launchers.hosts import OUTSIDE, hosts_in, unknown_nodes_problem

VENV_BIN = Path(".venv/bin")
# That of the ranks where a machine file names none.
PYTHON = (declarations.PYTHON,)
MPIEXEC = "mpiexec"
# Each rank has its number of threads in it.
THREADS_VARIABLE = "OMP_NUM_THREADS"
# The port on which torchrun's agents meet, on the first node.
RENDEZVOUS_PORT = 29400
# By which PALS gives each rank of a node as many cores as its --depth.
BY_DEPTH = "depth"


class Launcher(NamedTuple):
    """The launcher in use: its name, its executable relative to the checkout, and the environment of every rank."""

    name: str
    executable: str
    variables: dict[str, str] = {}  # noqa: RUF012
    # A host file, one node per line; None: the launcher knows its nodes.
    hosts: str | None = None
    # For torchrun on several nodes: the launcher that starts one agent per node, with its executable, and the node of the meeting.
    agent_launcher: tuple[str, str] | None = None
    first_node: str | None = None
    # The command of the ranks' Python. It is torchrun's too where the executable is its first word.
    python: tuple[str, ...] = PYTHON
    # Further arguments of launchers, by name.
    arguments: dict[str, tuple[str, ...]] = {}  # noqa: RUF012
    # By which interface ranks find each other, where the launcher has several.
    mpi: str = "none"
    # How PALS binds the ranks of a node.
    cpu_bind: str = BY_DEPTH

    @property
    def further_arguments(self) -> tuple[str, ...]:
        return self.arguments.get(self.name, ())

    def runs_elsewhere(self, num_nodes: int) -> bool:
        """Returns whether ranks on so many nodes may be on others than this one."""
        if LAUNCHERS[self.name].places == "node":
            return num_nodes > 1
        return bool(self.hosts) or LAUNCHERS[self.name].places == "cluster" or allocation() is not None


class Start(NamedTuple):
    """The ranks that a launcher starts."""

    launcher: Launcher
    num_ranks: int
    ranks_per_node: int
    cores_per_rank: int
    # The argv of a rank; that of a training starts with the launcher's `python`.
    program: tuple[str, ...]
    # Environment of every rank.
    variables: dict[str, str]

    @property
    def num_nodes(self) -> int:
        return -(-self.num_ranks // self.ranks_per_node)

    def with_passed(self, variables: dict[str, str]) -> "Start":
        """Returns the start with further variables in its options, where the launcher of its nodes passes on no others."""
        passes_environment = LAUNCHERS[agent_launcher_of(self.launcher).name].passes_environment
        return self if passes_environment else self._replace(variables=self.variables | variables)

    def argv(self) -> list[str]:
        """Returns the launcher's command. Raises UserError where the launcher cannot start these ranks."""
        return LAUNCHERS[self.launcher.name].argv(self)


def by_options(start: Start) -> list[str]:
    """Returns the argv of a launcher whose row in LAUNCHERS has its options."""
    kind, hosts = LAUNCHERS[start.launcher.name], start.launcher.hosts
    options = _filled(kind.options, **start._asdict(), num_nodes=start.num_nodes, mpi=start.launcher.mpi, cpu_bind=start.launcher.cpu_bind)
    argv = [start.launcher.executable, *options]
    if hosts:
        if not kind.hosts_option:
            raise UserError(f"--hosts is {hosts}, and {start.launcher.name} has no option for it; choose another --launcher")
        nodes = hosts_in(hosts)
        if len(nodes) < start.num_nodes:
            ranks_on_nodes = f"{start.num_ranks} ranks with {start.ranks_per_node} per node need {start.num_nodes}"
            raise UserError(f"{hosts} lists {len(nodes)} of the nodes, and {ranks_on_nodes}")
        nodes_of_ranks = [node for node in nodes for _ in range(start.ranks_per_node)][: start.num_ranks]
        argv += _filled(kind.hosts_option, hosts=hosts, nodes=",".join(nodes), nodes_of_ranks=",".join(nodes_of_ranks))
    elif kind.places == "hosts" and (
        problem := unknown_nodes_problem(start.num_nodes, start.launcher.name, kind.nodes_variables, start.launcher.further_arguments)
    ):
        raise UserError(problem)
    for name, value in start.variables.items():
        argv += _filled(kind.variable_option, name=name, value=value)
    return [*argv, *start.launcher.further_arguments, *start.program]


def _filled(template: str, **values: object) -> list[str]:
    """Returns the arguments of a template with these values, each in one argument whatever its characters."""
    return [argument.format(**values) for argument in template.split()]


def torchrun(start: Start) -> list[str]:
    """Returns the argv of PyTorch's torchrun, without MPI. On several nodes another launcher starts one agent per node."""
    python, executable = start.launcher.python, start.launcher.executable
    program = (*start.launcher.further_arguments, *start.program[len(python) :])
    torchrun_argv = [*python, "-m", "torch.distributed.run"] if executable == python[0] else [executable]
    agent = [*torchrun_argv, f"--nproc-per-node={start.ranks_per_node}"]
    if start.num_nodes == 1:
        return [*agent, "--standalone", *program]
    if start.num_ranks % start.ranks_per_node:
        raise UserError(
            f"torchrun starts the same number of ranks on each node, and {start.num_ranks} is not a multiple of {start.ranks_per_node}"
        )
    if start.launcher.agent_launcher is None or start.launcher.first_node is None:
        advice = "no MPI launcher or srun that starts its agents there is found" if start.launcher.first_node else OUTSIDE
        raise UserError(
            f"torchrun needs {start.num_nodes} nodes for {start.num_ranks} ranks with {start.ranks_per_node} per node; {advice}"
        )
    # An agent has the cores of all ranks of its node.
    agent_launcher = agent_launcher_of(start.launcher)._replace(cpu_bind=BY_DEPTH)
    numbering, rendezvous = rendezvous_of(agent_launcher)
    agents = start._replace(
        launcher=agent_launcher, num_ranks=start.num_nodes, ranks_per_node=1, cores_per_rank=start.cores_per_rank * start.ranks_per_node,
        program=(*numbering, *agent, f"--nnodes={start.num_nodes}", *rendezvous, *program),
    )  # fmt: skip
    return agents.argv()


def rendezvous_of(launcher: Launcher) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns (start of the command of an agent, its options), by which the agents that a launcher starts meet on the first node.

    Where the launcher gives each agent its number, that becomes the rank of its node. With c10d the agents number themselves, in the order
    of their host names.
    """
    if variable := LAUNCHERS[launcher.name].node_rank:
        numbering = ("sh", "-c", f'export PET_NODE_RANK=${variable}; exec "$@"', "sh")
        return numbering, (f"--master-addr={launcher.first_node}", f"--master-port={RENDEZVOUS_PORT}")
    return (), ("--rdzv-backend=c10d", f"--rdzv-endpoint={launcher.first_node}:{RENDEZVOUS_PORT}")


def agent_launcher_of(launcher: Launcher) -> Launcher:
    """Returns the Launcher that starts one process per node: another one for torchrun, else the launcher itself."""
    name, executable = launcher.agent_launcher or (launcher.name, launcher.executable)
    return launcher._replace(name=name, executable=executable)


def arguments_in(text: str, option: str) -> tuple[str, ...]:
    """Returns the arguments in the text of an option, quoted as for a shell. Raises UserError where a quote is not closed."""
    try:
        return tuple(shlex.split(text))
    except ValueError as problem:
        raise UserError(f"{option} is {text!r}: {str(problem).lower()}; quote as for a shell: --comment 'two words'") from None


class Kind(NamedTuple):
    """The properties of a launcher. The defaults are those of an mpiexec that belongs to no batch system."""

    # The options that place and bind ranks: a template with fields of a Start.
    options: str = ""
    # The option for the nodes of a host file. Most launchers get names, `nodes` or `nodes_of_ranks`, since the formats of their files
    # differ; PALS gets `hosts`, the file.
    hosts_option: str = ""
    # The variables in which a user may give it a host file.
    nodes_variables: tuple[str, ...] = ()
    # The option for a variable of the ranks; empty: the launcher passes its own environment on to them.
    variable_option: str = ""
    # Whether it passes its own environment on to other nodes too.
    passes_environment: bool = True
    # The function that makes the argv of a Start, where options are not enough.
    argv: Callable[[Start], list[str]] = by_options
    # Name of its executable.
    program: str = MPIEXEC
    # Texts in the output of `--version`; without any, the executable's name is enough.
    signatures: tuple[str, ...] = ()
    # Variables set inside an allocation of its batch system, where only it knows the nodes.
    allocations: tuple[str, ...] = ()
    # Where it starts ranks. "node": on its own node; on several nodes another launcher starts one agent per node.
    places: Literal["cluster", "hosts", "node"] = "hosts"
    provides_mpi: bool = True
    # The variable that chooses the interface by which ranks find each other; empty: it has one.
    mpi_variable: str = ""
    # The variables with the rank, which it sets for each; None: the rank asks MPI.
    rank_variables: Source | None = None
    # The variable with the number of a process, which is that of its node in the order of the hosts; empty: the order is another.
    node_rank: str = ""
    # Its message about a process that was ended by a signal: the global rank or the process ID, and the signal's number or name.
    killed: re.Pattern[str] | None = None
    # Variables that every rank needs with the environment's MPICH.
    mpich_variables: dict[str, str] = {}  # noqa: RUF012


# By their names in messages.
SIGNAL_NUMBERS = {
    str(signal.strsignal(number)): number for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM, signal.SIGBUS)
}
KILLED_BY_HYDRA = re.compile(r"PID (?P<pid>\d+) RUNNING AT .*\n(?:.*\n)*?.*\(signal (?P<signal>\d+)\)")
KILLED_BY_OPEN_MPI = re.compile(r"process rank (?P<rank>\d+) with PID \d+ on node \S+ exited on\s+signal (?P<signal>\d+)")
KILLED_BY_SLURM = re.compile(rf"srun: error: \S+: tasks? (?P<rank>\d+)[-,\d]*: (?P<name>{'|'.join(SIGNAL_NUMBERS)})")
KILLED_BY_TORCHRUN = re.compile(r"rank +: (?P<rank>\d+) \(local_rank: \d+\)\n +exitcode +: -(?P<signal>\d+) ")
# MPICH over UCX passes addresses of about 4 KiB, mostly uninitialized memory, to Slurm's PMI-2, in lines that may exceed the 1,024
# characters that Slurm reads. Ranks then occasionally abort or hang. Over libfabric an address is one short line.
MPICH_UNDER_SLURM = {"MPIR_CVAR_CH4_NETMOD": "ofi"}

LAUNCHERS = {
    # Hydra. Here and under the next two the ranks bind themselves to cores.
    "mpich": Kind(
        "-n {num_ranks} -ppn {ranks_per_node} -bind-to none", hosts_option="-hosts {nodes}", variable_option="-genv {name} {value}",
        nodes_variables=("HYDRA_HOST_FILE",), signatures=("HYDRA",), rank_variables=PMI, node_rank=PMI.rank, killed=KILLED_BY_HYDRA,
    ),
    # Oversubscription is allowed, and recorded. The host on which it is started comes first.
    "openmpi": Kind(
        "-n {num_ranks} --map-by ppr:{ranks_per_node}:node:OVERSUBSCRIBE --bind-to none", hosts_option="--host {nodes}",
        nodes_variables=("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"),
        variable_option="-x {name}={value}", passes_environment=False, signatures=("Open MPI", "OpenRTE"),
        rank_variables=OPEN_MPI, killed=KILLED_BY_OPEN_MPI,
    ),
    # A Hydra whose binding I_MPI_PIN controls.
    "intel": Kind(
        "-n {num_ranks} -ppn {ranks_per_node} -genv I_MPI_PIN 0", hosts_option="-hosts {nodes}", variable_option="-genv {name} {value}",
        nodes_variables=("I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE"), signatures=("Intel(R) MPI",),
        rank_variables=PMI, node_rank=PMI.rank, killed=KILLED_BY_HYDRA,
    ),
    # HPE Cray PALS, e.g. at ALCF. It rejects options of Open MPI and of Hydra.
    "pals": Kind(
        "-n {num_ranks} --ppn {ranks_per_node} --depth {cores_per_rank} --cpu-bind {cpu_bind}", hosts_option="--hostfile {hosts}",
        variable_option="--env {name}={value}", signatures=("PALS",), allocations=("PBS_JOBID",), places="cluster",
        rank_variables=PALS, node_rank=PALS.rank,
    ),
    # ALPS, on Cray XC machines.
    "aprun": Kind(
        "-n {num_ranks} -N {ranks_per_node} --cc depth -d {cores_per_rank}", hosts_option="-L {nodes}",
        variable_option="-e {name}={value}", program="aprun", signatures=("ALPS",),
        allocations=("PBS_JOBID",), places="cluster",
        node_rank=ALPS_RANK,
    ),
    # It sorts the nodes of a list. Without --kill-on-bad-exit the other ranks would wait for a failed one, without --overlap a run would
    # wait for those beside it, and without --export a job that was submitted with --export=NONE would pass on no variable. Slurm counts
    # hardware threads: only with one per core does a rank get as many physical cores as it needs, bound to
    # threads as at JSC and OLCF. By default it would deal the ranks of a node out over the sockets, away from the GPUs of their numbers.
    "srun": Kind(
        "--nodes={num_nodes} --ntasks={num_ranks} --ntasks-per-node={ranks_per_node} --cpus-per-task={cores_per_rank} --threads-per-core=1 "
        "--distribution=block:block --cpu-bind=threads --mpi={mpi} --kill-on-bad-exit=1 --overlap --export=ALL",
        hosts_option="--nodelist {nodes_of_ranks} --distribution=arbitrary",
        program="srun", signatures=("slurm",), allocations=("SLURM_JOB_ID",), places="cluster", mpi_variable=slurm.MPI_TYPE,
        rank_variables=SLURM, node_rank=SLURM.rank, killed=KILLED_BY_SLURM, mpich_variables=MPICH_UNDER_SLURM,
    ),
    "torchrun": Kind(
        argv=torchrun, program="torchrun", places="node", provides_mpi=False, rank_variables=TORCHRUN, killed=KILLED_BY_TORCHRUN,
    ),
}  # fmt: skip
ALLOCATIONS = tuple(dict.fromkeys(name for kind in LAUNCHERS.values() for name in kind.allocations))


def allocation() -> str | None:
    """Returns the name of the allocation around this process; None outside of one."""
    return next((os.environ[name] for name in ALLOCATIONS if os.environ.get(name)), None)


def shell_command(start: Start) -> str:
    """Returns the command of a Start, with the environment of its ranks, for a shell."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in start.variables.items()), shlex.join(start.argv())])

"""Job -> the command that starts it: one small pure function per launcher, and which of them is at hand."""

import subprocess
from pathlib import Path
from shutil import which
from typing import NamedTuple

from common import variants
from common.config import as_arguments
from common.errors import UserError

VENV_BIN = Path(".venv/bin")


class Start(NamedTuple):
    """What a launcher needs to know: how many ranks and where, cores for each, the program, and its own executable."""

    num_ranks: int
    ranks_per_node: int
    threads: int
    python: str
    module: str
    arguments: tuple[str, ...]
    executable: str

    @property
    def program(self):
        return [self.python, "-m", self.module, *self.arguments]

    @property
    def num_nodes(self):
        return -(-self.num_ranks // self.ranks_per_node)


def mpich(start):
    """Hydra, the mpiexec of MPICH. The ranks bind themselves to cores."""
    return [start.executable, "-n", str(start.num_ranks), "-ppn", str(start.ranks_per_node), *start.program]


def openmpi(start):
    """Open MPI's mpiexec. More ranks than slots are allowed, and noted in the record; the ranks bind themselves."""
    placing = ["--map-by", f"ppr:{start.ranks_per_node}:node:OVERSUBSCRIBE", "--bind-to", "none"]
    return [start.executable, "-n", str(start.num_ranks), *placing, *start.program]


def intel(start):
    """Intel MPI's mpiexec, a Hydra that takes the same options."""
    return mpich(start)


def pals(start):
    """The mpiexec of HPE Cray PALS, as at ALCF."""
    placing = ["--ppn", str(start.ranks_per_node), "--depth", str(start.threads), "--cpu-bind", "depth"]
    return [start.executable, "-n", str(start.num_ranks), *placing, *start.program]


def srun(start):
    """Slurm's srun. PMI-2 is what MPICH and Horovod on it understand."""
    placing = [
        f"--nodes={start.num_nodes}", f"--ntasks={start.num_ranks}", f"--ntasks-per-node={start.ranks_per_node}",
        f"--cpus-per-task={start.threads}", "--cpu-bind=cores", "--mpi=pmi2",
    ]  # fmt: skip
    return [start.executable, *placing, *start.program]


def torchrun(start):
    """PyTorch's torchrun, on one node. It starts no MPI."""
    if start.num_nodes > 1:
        raise UserError(
            f"--launcher torchrun is for one node here, and {start.num_ranks} ranks would need {start.num_nodes}; use another launcher"
        )
    return [start.executable, "--standalone", f"--nproc-per-node={start.num_ranks}", *start.program[1:]]


LAUNCHERS = {"mpich": mpich, "openmpi": openmpi, "intel": intel, "pals": pals, "srun": srun, "torchrun": torchrun}
WITHOUT_MPI = {"torchrun"}

# What `mpiexec --version` says of itself -> the launcher it is. A name alone tells nothing: three of these are called mpiexec.
SIGNATURES = {"Intel(R) MPI": "intel", "HYDRA": "mpich", "Open MPI": "openmpi", "OpenRTE": "openmpi", "PALS": "pals"}


def needs_mpi(backend):
    """Whether a backend exchanges over MPI from the start: Horovod does."""
    return backend.startswith("horovod")


def identify(version_text):
    """The launcher behind an mpiexec, from what it says of its version; None where it is none we know."""
    return next((name for sign, name in SIGNATURES.items() if sign in version_text), None)


def find(wanted, environ, root, path_of=which, version_of=None):
    """(launcher, executable): the one asked for, else srun or mpiexec inside an allocation, else the environment's mpiexec.

    The executable is given as it is to be typed in the checkout `root`. Raises UserError where there is none.
    """
    if wanted is not None and wanted not in LAUNCHERS:
        raise UserError(f"there is no launcher {wanted!r}; choose from: {', '.join(LAUNCHERS)}")
    if wanted is None and "SLURM_JOB_ID" in environ and path_of("srun"):
        wanted = "srun"
    name = wanted if wanted in ("srun", "torchrun") else "mpiexec"
    own = str(VENV_BIN / name) if (root / VENV_BIN / name).exists() else None
    site = name if path_of(name) else None
    if name != "mpiexec":
        if not (own or site):
            raise UserError(f"--launcher {name}: there is no {name} on the PATH")
        return name, own or site
    in_order = [site, own] if "PBS_JOBID" in environ else [own, site]
    asked = version_of or (lambda executable: _version_of(executable, root))
    seen = []
    for executable in filter(None, in_order):
        name = identify(asked(executable))
        if name and wanted in (None, name):
            return name, executable
        seen.append(f"{executable} is {name or 'of an unknown kind'}")
    raise UserError(
        f"no mpiexec{f' of {wanted}' if wanted else ''} found{' (' + '; '.join(seen) + ')' if seen else ''}; "
        "run launch/setup.sh, load an MPI module or choose with --launcher"
    )


def _version_of(executable, root):
    result = subprocess.run([executable, "--version"], cwd=root, capture_output=True, text=True, check=False, timeout=30)
    return result.stdout + result.stderr


def command(job, launcher, executable):
    """The argv of a job, and the variables it needs, for the checkout's top folder."""
    start = Start(
        num_ranks=job.ranks,
        ranks_per_node=job.ranks_per_node,
        threads=job.settings.threads,
        python=str(VENV_BIN / "python"),
        module=f"frameworks.{variants.file_of(job.backend)}",
        arguments=tuple(as_arguments(job.settings)),
        executable=executable,
    )
    return LAUNCHERS[launcher](start), {"OMP_NUM_THREADS": str(job.settings.threads)}

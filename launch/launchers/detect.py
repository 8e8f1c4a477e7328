"""Detects the launcher by its version output, and the first node of an allocation."""

import subprocess
from shutil import which

from common.errors import UserError
from launch.launchers.commands import LAUNCHERS, VENV_BIN, Launcher, hosts_in

# Text in the output of `--version` -> launcher. The name of the program is not enough: four launchers are called mpiexec, and aprun may
# be launch/aprun. The order matters: Hydra's output also mentions slurm.
SIGNATURES = {
    "Intel(R) MPI": "intel", "HYDRA": "mpich", "Open MPI": "openmpi", "OpenRTE": "openmpi", "PALS": "pals",
    "ALPS": "aprun", "slurm": "srun",
}  # fmt: skip
# MPICH over UCX passes addresses of about 4 KiB, mostly uninitialized memory, to Slurm's PMI-2, in lines that may exceed the 1,024
# characters that Slurm reads. Ranks then occasionally abort or hang. Over libfabric an address is one short line.
MPICH_UNDER_SLURM = {"MPIR_CVAR_CH4_NETMOD": "ofi"}
# Set inside an allocation of PBS or Cobalt, where only the site's own launcher knows the nodes.
ALLOCATIONS = {"PBS_JOBID", "COBALT_JOBID"}


def identify(version_text):
    """The launcher that prints this version text; None if unknown."""
    return next((name for sign, name in SIGNATURES.items() if sign in version_text), None)


def find(wanted, environ, root, path_of=which, version_of=None):
    """(launcher, executable): `wanted` if given, else srun, mpiexec or aprun inside an allocation, else the environment's mpiexec.

    The executable is relative to the checkout `root`. Raises UserError if none is found.
    """
    if wanted is not None and wanted not in LAUNCHERS:
        raise UserError(f"there is no launcher {wanted!r}; choose from: {', '.join(LAUNCHERS)}")
    if wanted == "torchrun":
        executable = _own("torchrun", root) or (path_of("torchrun") and "torchrun")
        if not executable:
            raise UserError("--launcher torchrun: no torchrun found in PATH")
        return wanted, executable
    get_version = version_of or (lambda executable: _version_of(executable, root))
    rejected = []
    for executable in candidates(wanted, environ, _own("mpiexec", root)):
        if executable == str(VENV_BIN / "mpiexec") or path_of(executable):
            name = identify(get_version(executable))
            if name and wanted in (None, name):
                return name, executable
            rejected.append(f"{executable} is {name or 'unknown'}")
    looked_for = wanted if wanted in ("srun", "aprun") else "mpiexec" if wanted is None else f"mpiexec of {wanted}"
    raise UserError(
        f"no {looked_for} found{' (' + '; '.join(rejected) + ')' if rejected else ''}; "
        "run launch/setup.sh, load an MPI module or choose a launcher with --launcher"
    )


def candidates(wanted, environ, own):
    """The programs to try as launcher, in order; `own` is the environment's mpiexec, or None."""
    if wanted in ("srun", "aprun"):
        return [wanted]
    in_allocation = bool(ALLOCATIONS & environ.keys())
    programs = ["mpiexec", own] if in_allocation else [own, "mpiexec"]
    if wanted is None:
        programs = [*(["srun"] if "SLURM_JOB_ID" in environ else []), *(["mpiexec", "aprun", own] if in_allocation else programs)]
    return [program for program in programs if program]


def first_node_of(hosts, environ, host_suffix):
    """The first node, by the name of its fast interface, as rendezvous; None if there is no list of nodes."""
    if hosts:
        first = hosts_in(hosts)[0]
    elif "PBS_NODEFILE" in environ:
        first = hosts_in(environ["PBS_NODEFILE"])[0]
    elif "SLURM_JOB_NODELIST" in environ and which("scontrol"):
        listed = ["scontrol", "show", "hostnames", environ["SLURM_JOB_NODELIST"]]
        first = subprocess.run(listed, capture_output=True, text=True, check=True, timeout=30).stdout.split()[0]
    else:
        return None
    return first.split(".")[0] + host_suffix if host_suffix else first


def choose(wanted, hosts, variables, host_suffix, environ, root, pretend=False):
    """The Launcher of a matrix. With `pretend`, a wanted launcher that is not installed is returned by its usual name.

    Raises UserError if none is found or the host file cannot be read.
    """
    if hosts:
        hosts_in(hosts)
    try:
        name, executable = find(wanted, environ, root)
    except UserError:
        if not (pretend and wanted in LAUNCHERS):
            raise
        name, executable = wanted, wanted if wanted in ("srun", "aprun", "torchrun") else "mpiexec"
    variables = variables_for(name, root) | variables
    if name != "torchrun":
        return Launcher(name, executable, variables, hosts)
    try:
        agent_launcher = find(None, environ, root)
    except UserError:
        agent_launcher = None
    return Launcher(name, executable, variables, hosts, agent_launcher, first_node_of(hosts, environ, host_suffix))


def variables_for(name, root):
    """Variables that every rank needs under a launcher with the environment's MPI."""
    return MPICH_UNDER_SLURM if name == "srun" and _own("mpiexec", root) else {}


def _own(program, root):
    """The path of a program of the environment, relative to the checkout; None if it does not exist."""
    return str(VENV_BIN / program) if (root / VENV_BIN / program).exists() else None


def _version_of(executable, root):
    result = subprocess.run([executable, "--version"], cwd=root, capture_output=True, text=True, check=False, timeout=30)
    return result.stdout + result.stderr

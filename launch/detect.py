"""Which launcher is at hand, by what it says it is, and which node is the first one."""

import subprocess
from shutil import which

from common.errors import UserError
from launch.launchers import LAUNCHERS, VENV_BIN, Launcher, hosts_in

# What a launcher's `--version` says of itself -> the launcher it is. A name alone tells nothing: four of these are called mpiexec,
# and what is called aprun may be launch/aprun. Hydra also names Slurm, as something that it knows how to use.
SIGNATURES = {
    "Intel(R) MPI": "intel", "HYDRA": "mpich", "Open MPI": "openmpi", "OpenRTE": "openmpi", "PALS": "pals",
    "ALPS": "aprun", "slurm": "srun",
}  # fmt: skip
# MPICH over UCX hands Slurm's PMI-2 some 4 KiB an address, most of it whatever lay in its memory, in lines that may be longer than the
# 1,024 characters that Slurm reads: now and then ranks then abort or wait for ever. Over libfabric an address takes one short line.
MPICH_UNDER_SLURM = {"MPIR_CVAR_CH4_NETMOD": "ofi"}
# What an allocation of PBS or of Cobalt sets; inside it the site's own launcher alone knows the nodes.
ALLOCATIONS = {"PBS_JOBID", "COBALT_JOBID"}


def identify(version_text):
    """The launcher behind a program, from what it says of its version; None where it is none we know."""
    return next((name for sign, name in SIGNATURES.items() if sign in version_text), None)


def find(wanted, environ, root, path_of=which, version_of=None):
    """(launcher, executable): the one asked for, else srun, mpiexec or aprun inside an allocation, else the environment's mpiexec.

    The executable is given as it is to be typed in the checkout `root`. Raises UserError where there is none.
    """
    if wanted is not None and wanted not in LAUNCHERS:
        raise UserError(f"there is no launcher {wanted!r}; choose from: {', '.join(LAUNCHERS)}")
    if wanted == "torchrun":
        executable = _own("torchrun", root) or (path_of("torchrun") and "torchrun")
        if not executable:
            raise UserError("--launcher torchrun: there is no torchrun on the PATH")
        return wanted, executable
    asked = version_of or (lambda executable: _version_of(executable, root))
    seen = []
    for executable in candidates(wanted, environ, _own("mpiexec", root)):
        if executable == str(VENV_BIN / "mpiexec") or path_of(executable):
            name = identify(asked(executable))
            if name and wanted in (None, name):
                return name, executable
            seen.append(f"{executable} is {name or 'of an unknown kind'}")
    looked_for = wanted if wanted in ("srun", "aprun") else "mpiexec" if wanted is None else f"mpiexec of {wanted}"
    raise UserError(
        f"no {looked_for} found{' (' + '; '.join(seen) + ')' if seen else ''}; "
        "run launch/setup.sh, load an MPI module or choose with --launcher"
    )


def candidates(wanted, environ, own):
    """The programs that may be the launcher, the likeliest first; `own` is the environment's mpiexec, or None."""
    if wanted in ("srun", "aprun"):
        return [wanted]
    in_allocation = bool(ALLOCATIONS & environ.keys())
    programs = ["mpiexec", own] if in_allocation else [own, "mpiexec"]
    if wanted is None:
        programs = [*(["srun"] if "SLURM_JOB_ID" in environ else []), *(["mpiexec", "aprun", own] if in_allocation else programs)]
    return [program for program in programs if program]


def first_node_of(hosts, environ, host_suffix):
    """The node where ranks on several nodes meet, by the name of its fast interface; None where nobody names the nodes."""
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
    """The Launcher for a matrix; with `pretend`, one that is asked for and not here is given by the name it has elsewhere.

    Raises UserError where there is none, or the file of hosts cannot be read.
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
        carrier = find(None, environ, root)
    except UserError:
        carrier = None
    return Launcher(name, executable, variables, hosts, carrier, first_node_of(hosts, environ, host_suffix))


def variables_for(name, root):
    """What every rank needs under a launcher with the environment's MPI."""
    return MPICH_UNDER_SLURM if name == "srun" and _own("mpiexec", root) else {}


def _own(program, root):
    """How a program of the environment is typed in the checkout; None where there is none."""
    return str(VENV_BIN / program) if (root / VENV_BIN / program).exists() else None


def _version_of(executable, root):
    result = subprocess.run([executable, "--version"], cwd=root, capture_output=True, text=True, check=False, timeout=30)
    return result.stdout + result.stderr

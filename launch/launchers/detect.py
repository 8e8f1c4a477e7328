"""Detects the launcher by its version output, and the first node of an allocation."""

import subprocess
from shutil import which

from common.errors import UserError
from launch.launchers.commands import LAUNCHERS, MPIEXEC, VENV_BIN, Launcher, hosts_in


def identify(version_text):
    """The launcher that prints this version text; None if unknown.

    The name of the program is not enough: four launchers are called mpiexec, and aprun may be launch/aprun. The first signature in the text
    decides, since Hydra's text goes on to name slurm.
    """
    places = {version_text.find(sign): name for name, kind in LAUNCHERS.items() for sign in kind.signatures if sign in version_text}
    return places[min(places)] if places else None


def find(wanted, environ, root, path_of=which, version_of=None):
    """(launcher, executable): `wanted` if given, else that of the allocation, else the environment's mpiexec.

    The executable is relative to the checkout `root`. Raises UserError if none is found.
    """
    if wanted is not None and wanted not in LAUNCHERS:
        raise UserError(f"there is no launcher {wanted!r}; choose from: {', '.join(LAUNCHERS)}")
    kind = LAUNCHERS.get(wanted)
    if kind and not kind.signatures:
        executable = _own(kind.program, root) or (path_of(kind.program) and kind.program)
        if not executable:
            raise UserError(f"--launcher {wanted}: no {kind.program} found in PATH")
        return wanted, executable
    get_version = version_of or (lambda executable: _version_of(executable, root))
    rejected = []
    for executable in candidates(kind, environ, _own(MPIEXEC, root)):
        if executable == str(VENV_BIN / MPIEXEC) or path_of(executable):
            name = identify(get_version(executable))
            if name and wanted in (None, name):
                return name, executable
            rejected.append(f"{executable} is {name or 'unknown'}")
    looked_for = MPIEXEC if kind is None else kind.program if kind.program != MPIEXEC else f"{MPIEXEC} of {wanted}"
    raise UserError(
        f"no {looked_for} found{' (' + '; '.join(rejected) + ')' if rejected else ''}; "
        "run launch/setup.sh, load an MPI module or choose a launcher with --launcher"
    )


def candidates(kind, environ, own):
    """The programs to try as launcher, in order: the site's inside an allocation, where only they know the nodes, then mpiexec.

    `kind`: the wanted Kind, or None. `own`: the environment's mpiexec, or None.
    """
    of_site = [row.program for row in LAUNCHERS.values() if environ.keys() & set(row.allocations)]
    programs = [program for program in dict.fromkeys([*of_site, own, MPIEXEC]) if program]
    if kind is None:
        return programs
    return [program for program in programs if program in (own, MPIEXEC)] if kind.program == MPIEXEC else [kind.program]


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
        name, executable = wanted, LAUNCHERS[wanted].program
    variables = variables_for(name, root) | variables
    if LAUNCHERS[name].places != "node":
        return Launcher(name, executable, variables, hosts)
    try:
        agent_launcher = find(None, environ, root)
    except UserError:
        agent_launcher = None
    return Launcher(name, executable, variables, hosts, agent_launcher, first_node_of(hosts, environ, host_suffix))


def variables_for(name, root):
    """Variables that every rank needs under a launcher with the environment's MPI."""
    return LAUNCHERS[name].mpich_variables if _own(MPIEXEC, root) else {}


def _own(program, root):
    """The path of a program of the environment, relative to the checkout; None if it does not exist."""
    return str(VENV_BIN / program) if (root / VENV_BIN / program).exists() else None


def _version_of(executable, root):
    result = subprocess.run([executable, "--version"], cwd=root, capture_output=True, text=True, check=False, timeout=30)
    return result.stdout + result.stderr

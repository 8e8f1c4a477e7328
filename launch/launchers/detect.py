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


def find(launcher, environ, root, path_of=which, version_of=None):
    """Returns (launcher, executable): `launcher` if it is one, else that of the allocation, else the environment's mpiexec.

    The executable is relative to the checkout `root`. Raises UserError if none is found.
    """
    if launcher is not None and launcher not in LAUNCHERS:
        raise UserError(f"there is no launcher {launcher!r}; choose from: {', '.join(LAUNCHERS)}")
    kind = LAUNCHERS.get(launcher)
    if kind and not kind.signatures:
        executable = _environment_path(kind.program, root) or (path_of(kind.program) and kind.program)
        if not executable:
            raise UserError(f"--launcher {launcher}: no {kind.program} found in PATH")
        return launcher, executable
    get_version = version_of or (lambda executable: _version_of(executable, root))
    rejected = []
    for executable in candidates(kind, environ, _environment_path(MPIEXEC, root)):
        if executable == str(VENV_BIN / MPIEXEC) or path_of(executable):
            name = identify(get_version(executable))
            if name and launcher in (None, name):
                return name, executable
            rejected.append(f"{executable} is {name or 'unknown'}")
    missing = MPIEXEC if kind is None else kind.program if kind.program != MPIEXEC else f"{MPIEXEC} of {launcher}"
    raise UserError(
        f"no {missing} found{' (' + '; '.join(rejected) + ')' if rejected else ''}; "
        "run launch/setup.sh, load an MPI module or choose a launcher with --launcher"
    )


def candidates(kind, environ, environment_mpiexec):
    """The programs to try as launcher, in order: the site's inside an allocation, where only they know the nodes, then mpiexec.

    `kind`: the wanted Kind, or None. `environment_mpiexec`: its path, or None.
    """
    site_programs = [site_kind.program for site_kind in LAUNCHERS.values() if environ.keys() & set(site_kind.allocations)]
    programs = [program for program in dict.fromkeys([*site_programs, environment_mpiexec, MPIEXEC]) if program]
    if kind is None:
        return programs
    return [program for program in programs if program in (environment_mpiexec, MPIEXEC)] if kind.program == MPIEXEC else [kind.program]


def first_node_of(hosts, environ, host_suffix):
    """The first node, by the name of its fast interface, as rendezvous; None if there is no list of nodes."""
    if hosts:
        node = hosts_in(hosts)[0]
    elif "PBS_NODEFILE" in environ:
        node = hosts_in(environ["PBS_NODEFILE"])[0]
    elif "SLURM_JOB_NODELIST" in environ and which("scontrol"):
        command = ["scontrol", "show", "hostnames", environ["SLURM_JOB_NODELIST"]]
        node = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.split()[0]
    else:
        return None
    return node.split(".")[0] + host_suffix if host_suffix else node


def choose(launcher, hosts, variables, host_suffix, environ, root, pretend=False):
    """The Launcher of a matrix. With `pretend`, a `launcher` that is not installed is returned by its usual name.

    Raises UserError if none is found or the host file cannot be read.
    """
    if hosts:
        hosts_in(hosts)
    try:
        name, executable = find(launcher, environ, root)
    except UserError:
        if not (pretend and launcher in LAUNCHERS):
            raise
        name, executable = launcher, LAUNCHERS[launcher].program
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
    return LAUNCHERS[name].mpich_variables if _environment_path(MPIEXEC, root) else {}


def _environment_path(program, root):
    """The path of a program of the environment, relative to the checkout; None if it does not exist."""
    return str(VENV_BIN / program) if (root / VENV_BIN / program).exists() else None


def _version_of(executable, root):
    process = subprocess.run([executable, "--version"], cwd=root, capture_output=True, text=True, check=False, timeout=30)
    return process.stdout + process.stderr

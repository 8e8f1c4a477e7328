"""Detects the launcher by its version output."""

import contextlib
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which

from common.declarations import ROOT
from common.errors import UserError
from common.ranks import slurm
from launch.launchers.commands import LAUNCHERS, MPIEXEC, VENV_BIN, Kind, Launcher, arguments_in
from launch.launchers.hosts import first_node_of, hosts_in
from launch.launchers.machine_files import Machine, python_of, variables_of

# {text in the version of an MPI: the interfaces of `srun --mpi=` for it, the best first}. The first text that fits counts. ParaStation's
# pspmi is the first version of PMI, which MPICH speaks too.
INTERFACES = {"CRAY MPICH": ("cray_shasta", "pmi2"), "Open MPI": ("pmix", "pmi2"), "": ("pmi2", "pmix", "pspmi")}
MPI_VERSION = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"


class NotFound(UserError):
    """There is no program to start ranks with."""


def identify(version_text: str) -> str | None:
    """Returns the launcher that prints this version text; None if unknown.

    The name of the program is not enough: four launchers are called mpiexec. The first signature in the text decides,
    since Hydra's text goes on to name slurm.
    """
    positions = {version_text.find(sign): name for name, kind in LAUNCHERS.items() for sign in kind.signatures if sign in version_text}
    return positions[min(positions)] if positions else None


def find(launcher: str | None = None) -> tuple[str, str]:
    """Returns (launcher, executable): `launcher` if it is one, else that of the allocation, else the environment's mpiexec.

    The executable is relative to the checkout. Raises NotFound if there is none, UserError if there is no such launcher.
    """
    if launcher is not None and launcher not in LAUNCHERS:
        raise UserError(f"there is no launcher {launcher!r}; choose from: {', '.join(LAUNCHERS)}")
    kind = LAUNCHERS[launcher] if launcher else None
    if launcher and kind and not kind.signatures:
        executable = _environment_path(kind.program) or (which(kind.program) and kind.program)
        if not executable:
            raise NotFound(f"--launcher {launcher}: no {kind.program} found in PATH")
        return launcher, executable
    rejected = []
    for executable in candidates(kind):
        if executable == _environment_path(MPIEXEC) or which(executable):
            name = identify(output_of([executable, "--version"]))
            if name and launcher in (None, name):
                return name, executable
            rejected.append(f"{executable} is {name or 'unknown'}")
    missing = MPIEXEC if kind is None else kind.program if kind.program != MPIEXEC else f"{MPIEXEC} of {launcher}"
    raise NotFound(
        f"no {missing} found{' (' + '; '.join(rejected) + ')' if rejected else ''}; "
        "run launch/setup.sh, load an MPI module or choose a launcher with --launcher"
    )


def candidates(kind: Kind | None) -> list[str]:
    """Returns the programs to try as a launcher of a Kind, or of any for None, in order.

    The site's come first inside an allocation, where only they know the nodes, then the environment's mpiexec, then one in PATH.
    """
    site_programs = [site_kind.program for site_kind in LAUNCHERS.values() if any(map(os.environ.get, site_kind.allocations))]
    programs = dict.fromkeys([*site_programs, _environment_path(MPIEXEC), MPIEXEC, kind and kind.program])
    return [program for program in programs if program and (kind is None or Path(program).name == kind.program)]


def choose(
    launcher: str | None = None,
    arguments: str | None = None,
    machine: Machine = Machine(),  # noqa: B008
    hosts: str | None = None,
    pretend: bool = False,
) -> Launcher:
    """Returns the Launcher of a program. With `pretend`, a `launcher` that is not installed has its usual name, and a Python that is not
    on this node is not asked for its mpi4py.

    `launcher` and `arguments` go over the machine's. `hosts` is the path of a host file. Raises UserError if no launcher is found, if the
    host file cannot be read or if a quote in `arguments` is not closed. By default a site's Python without mpi4py runs under torchrun.
    """
    if hosts:
        hosts_in(hosts)
    launcher, python = launcher or machine.launcher, python_of(machine)
    name, executable = _program(launcher, python, pretend)
    # With the environment's MPI.
    mpich_variables = LAUNCHERS[name].mpich_variables if _environment_path(MPIEXEC) else {}
    texts = {machine.launcher or name: machine.launcher_args} | ({} if arguments is None else {name: arguments})
    by_name = {named: arguments_in(text, "--launcher-args") for named, text in texts.items()}
    variables = mpich_variables | variables_of(machine)
    chosen = Launcher(name, executable, variables, hosts, arguments=by_name, python=python, cpu_bind=machine.cpu_bind)
    if LAUNCHERS[name].places == "node":
        # What starts its agents on several nodes, and the node on which they meet.
        chosen = chosen._replace(first_node=first_node_of(hosts, machine.host_suffix))
        with contextlib.suppress(UserError):
            chosen = chosen._replace(agent_launcher=find())
    return chosen._replace(mpi=machine.mpi or interface_of(chosen)) if LAUNCHERS[name].mpi_variable else chosen


def _program(launcher: str | None, python: Sequence[str], pretend: bool) -> tuple[str, str]:
    """Returns the launcher and its executable, as `choose` does."""
    is_environment = python[-1] == str(VENV_BIN / "python")
    is_asked = not is_environment and not (pretend and which(python[0]) is None)
    if launcher is None and is_asked and not has_mpi4py(python):
        launcher = "torchrun"
    if launcher == "torchrun" and not is_environment:
        return launcher, python[0]
    try:
        return find(launcher)
    except UserError:
        if pretend and launcher and launcher in LAUNCHERS:
            return launcher, LAUNCHERS[launcher].program
        raise


def interface_of(launcher: Launcher) -> str:
    """Returns the value of srun's --mpi: the user's choice, else the best that srun offers and the ranks' MPI speaks.

    It is `none` where srun offers nothing of that, by which backends without MPI still run, and the best where srun is not here.
    """
    # In the shell of an interactive step `none` is nobody's choice, but the site's default.
    if (value := os.environ.get(LAUNCHERS[launcher.name].mpi_variable) or "none") != "none":
        return value
    version, offered = output_of([*launcher.python, "-c", MPI_VERSION], launcher.variables), slurm.mpi_types()
    spoken = next(names for text, names in INTERFACES.items() if text in version)
    if not offered:
        return spoken[0]
    return next((name for speech in spoken for name in offered if slurm.interface(name) == speech), "none")


def has_mpi4py(python: Sequence[str]) -> bool:
    """Returns whether a site's Python has mpi4py. Raises UserError where it cannot be started."""
    program = "import importlib.util; print('mpi4py:', importlib.util.find_spec('mpi4py') is not None)"
    try:
        process = subprocess.run([*python, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError as problem:
        raise UserError(f"{python[0]}, of the machine file's python, could not be started: {problem.strerror}") from None
    if "mpi4py: " not in process.stdout:
        reason = ([*process.stdout.splitlines(), *process.stderr.splitlines()] or [f"exit status {process.returncode}"])[-1]
        raise UserError(f"the machine file's python, {shlex.join(python)}, could not be started: {reason}")
    return "mpi4py: True" in process.stdout


def output_of(argv: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
    """Returns the output of a program; nothing where it cannot be started, or does not end."""
    environ = os.environ | (variables or {})
    try:
        process = subprocess.run(argv, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout + process.stderr


def _environment_path(program: str) -> str | None:
    """Returns the path of a program of the environment, relative to the checkout; None if it does not exist."""
    return str(VENV_BIN / program) if (ROOT / VENV_BIN / program).exists() else None

"""Builds the MPI interposer, libtandemtrace.so, for the environment's MPI, unless it is up to date.

python -m launch.trace.build
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from common import command_line
from common.declarations import PYTHON
from common.errors import UserError
from launch.trace import generate

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "interposer"
GENERATORS = ("generate.py", "build.py")
NAME = "libtandemtrace.so"
FLAGS = (
    "-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-ftls-model=initial-exec",
    "-Wall", "-Wextra", "-Wno-deprecated-declarations", "-Wno-unused-parameter", "-Wno-format-truncation",
    # Does not link MPI: the interposer must load where there is none.
    "-Wl,--as-needed", "-Wl,--no-undefined",
)  # fmt: skip

# Prints the path of the MPI library with which programs of this mpicc run.
WHICH_MPI = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
int main(void)
{
    Dl_info where;
    int (*volatile used)(int *, int *) = MPI_Get_version;
    void *found = dlsym(RTLD_DEFAULT, "MPI_Get_version");
    return used && found && dladdr(found, &where) ? puts(where.dli_fname) < 0 : 1;
}
"""


def default_library() -> Path:
    """Returns the path of the environment's interposer."""
    return Path(sys.prefix) / "lib" / NAME


def installed() -> Path:
    """Returns the path of the environment's interposer. Raises UserError where it is missing: compute nodes may lack a compiler."""
    library = default_library()
    if not library.exists():
        raise UserError(f"{library} is not built; run {PYTHON} -m launch.trace.build on a node with a compiler")
    return library


def mpicc_of_environment(choices: str | None = None) -> str:
    """Returns the mpicc that was chosen for launch/setup.sh, or the environment's own."""
    path = Path(sys.prefix) / "tandem-choices"
    text = path.read_text() if choices is None and path.exists() else choices or ""
    mpicc = dict(line.split("=", 1) for line in text.splitlines() if "=" in line).get("TANDEM_MPICC")
    return mpicc or str(Path(sys.prefix) / "bin" / "mpicc")


def fingerprint(*inputs: str) -> str:
    """Hashes all inputs of the build (the given texts, the flags, our sources). The library contains the hash."""
    digest = hashlib.sha256("\0".join([*inputs, *FLAGS]).encode())
    for path in (*(HERE / name for name in GENERATORS), *sorted(SOURCES.iterdir())):
        digest.update(path.read_bytes())
    return f"tandem-trace-{digest.hexdigest()[:16]}"


def mpi_library(mpicc: str) -> str:
    """Returns the path of the MPI library; empty where an MPI program cannot run on this node."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "which_mpi.c"), Path(folder, "which_mpi")
        source.write_text(WHICH_MPI)
        subprocess.run([mpicc, source, "-o", program, "-ldl"], capture_output=True, check=False)
        try:
            return subprocess.run([program], capture_output=True, text=True, check=False).stdout.strip()
        except OSError:
            return ""


def is_up_to_date(library: Path, build_id: str) -> bool:
    return library.exists() and build_id.encode() in library.read_bytes()


def build(library: str | Path | None = None, mpicc: str | None = None) -> Path:
    """Builds the interposer for an MPI, unless it is up to date, and returns its path. Raises UserError where it cannot be compiled."""
    library = Path(library or default_library())
    mpicc = mpicc or mpicc_of_environment()
    mpi_h = generate.preprocessed(mpicc)
    compiler = subprocess.run([mpicc, "--version"], capture_output=True, text=True, check=False).stdout
    libmpi = mpi_library(mpicc)
    build_id = fingerprint(mpi_h, mpicc, compiler, libmpi)
    if is_up_to_date(library, build_id):
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trace-", dir=library.parent) as folder:
        generated = Path(folder)
        (generated / "generated.h").write_text(generate.generated_h(mpi_h))
        (generated / "wrappers.c").write_text(generate.wrappers_c(mpi_h))
        sources = [*sorted(SOURCES.glob("*.c")), generated / "wrappers.c"]
        built = generated / NAME
        constants = {"TRACE_FINGERPRINT": build_id, "TRACE_LIBMPI": libmpi}
        defined = [f'-D{constant}="{value}"' for constant, value in constants.items()]
        command = [mpicc, *FLAGS, *defined, f"-I{generated}", f"-I{SOURCES}", "-o", built, *sources, "-ldl"]
        process = subprocess.run([str(argument) for argument in command], capture_output=True, text=True, check=False)
        if process.returncode:
            sys.stderr.write(process.stderr)
            raise UserError(f"{mpicc} could not compile the interposer; see its messages above")
        os.replace(built, library)
    return library


@dataclass(frozen=True)
class Arguments:
    """What to build, for which MPI."""

    mpicc: str | None = None
    """mpicc of the MPI to trace. Default: the one of the environment's set-up."""
    library: Path | None = None
    """Path of the library. Default: the environment's lib/libtandemtrace.so."""


def run(arguments: Arguments) -> int:
    """Builds the library, prints its path and returns the exit status."""
    print(build(arguments.library, arguments.mpicc))
    return 0


if __name__ == "__main__":
    command_line.main(run, Arguments, f"{PYTHON} -m launch.trace.build", "Builds the MPI interposer, unless it is up to date.")

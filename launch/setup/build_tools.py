"""Checks what Horovod is built with before anything is downloaded: the compiler, the mpicc of a site's MPI, the CUDA toolkit.

Prints the mpicc to build with and its folder of libraries, or the folder of the toolkit. Standard library only: it runs before there is an
environment.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# The first with the whole of C++17, in which the headers of PyTorch are written.
LEAST_GCC = 9
# The folder of HPE's MPICH, whose own mpicc shows what HPE's `cc` does not.
CRAY_FOLDERS = ("CRAY_MPICH_DIR", "MPICH_DIR")


class ToolError(Exception):
    """What is wrong with a tool and what to do, in one line."""


def output_of(*command: str, with_errors: bool = False) -> str:
    """Returns what a program prints to standard output; nothing where it fails. `with_errors`: all that it prints, however it ends."""
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    if with_errors:
        return process.stdout + process.stderr
    return "" if process.returncode else process.stdout.strip()


def expect_compiler(version: str) -> None:
    """Raises ToolError where a GCC of this version, as `g++ -dumpfullversion -dumpversion` prints it, is too old."""
    major = re.match(r"\d+", version)
    if major and int(major[0]) < LEAST_GCC:
        raise ToolError(
            f"g++ is of GCC {version}, and PyTorch's headers need GCC {LEAST_GCC} or newer (C++17); load a newer compiler's module, "
            "such as gcc, gcc-native or gcc-toolset"
        )


def site_mpicc(mpicc: str, environ: Mapping[str, str]) -> str:
    """Returns an mpicc that shows how it links: the given one, or that of the MPICH behind HPE's `cc`. Raises ToolError without."""
    if output_of(mpicc, "-show"):
        return mpicc
    if output_of(mpicc, "--cray-print-opts=libs"):
        candidates = [str(Path(environ[name], "bin", "mpicc")) for name in CRAY_FOLDERS if environ.get(name)]
        if shown := next((path for path in candidates if output_of(path, "-show")), None):
            return shown
        raise ToolError(f"{mpicc} is HPE's wrapper, and there is no mpicc in {' or '.join(CRAY_FOLDERS)}; run: module load cray-mpich")
    raise ToolError(f"{mpicc} -show failed; TANDEM_MPICC must be the mpicc of MPICH, Open MPI or a vendor's MPI, or HPE's cc")


def library_folder(shown: str) -> str:
    """Returns the last folder of libraries in what an mpicc shows; empty where it names none."""
    return (["", *re.findall(r"(?:^|\s)-L\s*(\S+)", shown)])[-1]


def toolkit(environ: Mapping[str, str], cuda: str) -> Path:
    """Returns the folder of the toolkit that CUDA_HOME names, or else of the nvcc on PATH.

    Raises ToolError where it has not at least the version `cuda`, such as 13.0.
    """
    light = "TANDEM_PYTHON=python3 launch/setup.sh --light takes the site's PyTorch as it is"
    remedy = f"{light}; or load a module of CUDA {cuda}, or set CUDA_HOME to its folder; TANDEM_DEVICE=cpu sets up without GPUs"
    home = environ.get("CUDA_HOME")
    nvcc = shutil.which(f"{home}/bin/nvcc" if home else "nvcc", path=environ.get("PATH"))
    if nvcc is None:
        raise ToolError(f"{f'CUDA_HOME is {home!r}, which has' if home else 'there is'} no nvcc; {remedy}")
    release = re.search(r"release (\d+)\.(\d+)", output_of(nvcc, "--version", with_errors=True))
    if release is None:
        raise ToolError(f"{nvcc} --version tells no release of CUDA; {remedy}")
    installed, needed = tuple(map(int, release.groups())), tuple(map(int, cuda.split(".")))
    if installed[0] != needed[0] or installed < needed:
        raise ToolError(f"{nvcc} is of CUDA {installed[0]}.{installed[1]}, and this PyTorch of CUDA {cuda}; {remedy}")
    # nvcc on PATH may be a link or a script anywhere. It prints the folder that it takes headers from.
    top = re.search(r"^#\$ TOP=(.+)$", output_of(nvcc, "--dryrun", "x.cu", with_errors=True), re.MULTILINE)
    return Path(home or (top and top[1]) or Path(nvcc).resolve().parents[1]).resolve()


def main() -> None:
    parser = argparse.ArgumentParser(description="Checks what Horovod is built with, and prints where it is.")
    parser.add_argument("--mpicc", help="mpicc of a site's MPI (default: the environment's mpich)")
    parser.add_argument("--cuda", help="the CUDA version of PyTorch's wheel, pinned in environment.yml: look for its toolkit alone")
    arguments = parser.parse_args()
    try:
        if arguments.cuda:
            print(toolkit(os.environ, arguments.cuda))
            return
        expect_compiler(output_of("g++", "-dumpfullversion", "-dumpversion"))
        if arguments.mpicc:
            mpicc = site_mpicc(arguments.mpicc, os.environ)
            print(mpicc, library_folder(output_of(mpicc, "-show")), sep="\n")
    except ToolError as error:
        print(f"setup: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

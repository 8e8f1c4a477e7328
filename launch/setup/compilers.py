"""Checks the compiler and the mpicc of a site's MPI before anything is downloaded; prints the mpicc to build with, and its library folder.

Standard library only: it runs before there is an environment.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# The first with the whole of C++17, in which the headers of PyTorch are written.
LEAST_GCC = 9
# The folder of HPE's MPICH, whose own mpicc shows what HPE's `cc` does not.
CRAY_FOLDERS = ("CRAY_MPICH_DIR", "MPICH_DIR")


class CompilerError(Exception):
    """What is wrong with a compiler and what to do, in one line."""


def output_of(*command: str) -> str:
    """Returns what a program prints to standard output; nothing where it fails."""
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return "" if process.returncode else process.stdout.strip()


def expect_compiler(version: str) -> None:
    """Raises CompilerError where a GCC of this version, as `g++ -dumpfullversion -dumpversion` prints it, is too old."""
    major = re.match(r"\d+", version)
    if major and int(major[0]) < LEAST_GCC:
        raise CompilerError(
            f"g++ is of GCC {version}, and PyTorch's headers need GCC {LEAST_GCC} or newer (C++17); load a newer compiler's module, "
            "such as gcc, gcc-native or gcc-toolset"
        )


def site_mpicc(mpicc: str, environ: Mapping[str, str]) -> str:
    """Returns an mpicc that shows how it links: the given one, or that of the MPICH behind HPE's `cc`. Raises CompilerError without."""
    if output_of(mpicc, "-show"):
        return mpicc
    if output_of(mpicc, "--cray-print-opts=libs"):
        candidates = [str(Path(environ[name], "bin", "mpicc")) for name in CRAY_FOLDERS if environ.get(name)]
        if shown := next((path for path in candidates if output_of(path, "-show")), None):
            return shown
        raise CompilerError(f"{mpicc} is HPE's wrapper, and there is no mpicc in {' or '.join(CRAY_FOLDERS)}; run: module load cray-mpich")
    raise CompilerError(f"{mpicc} -show failed; TANDEM_MPICC must be the mpicc of MPICH, Open MPI or a vendor's MPI, or HPE's cc")


def library_folder(shown: str) -> str:
    """Returns the last folder of libraries in what an mpicc shows; empty where it names none."""
    return (["", *re.findall(r"(?:^|\s)-L\s*(\S+)", shown)])[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description="Checks the compiler, and prints the mpicc to build with and its folder of libraries.")
    parser.add_argument("--mpicc", help="mpicc of a site's MPI (default: the environment's mpich)")
    mpicc = parser.parse_args().mpicc
    try:
        expect_compiler(output_of("g++", "-dumpfullversion", "-dumpversion"))
        if mpicc:
            mpicc = site_mpicc(mpicc, os.environ)
            print(mpicc, library_folder(output_of(mpicc, "-show")), sep="\n")
    except CompilerError as error:
        sys.exit(f"setup: {error}")


if __name__ == "__main__":
    main()

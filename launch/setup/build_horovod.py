"""Builds a Horovod wheel from its released source, unless it is in the cache; prints the path of the wheel.

The released source does not compile against current PyTorch and TensorFlow. SUBSTITUTIONS are the required changes. Each must
match exactly once, so that a new release of Horovod stops the build instead of being changed partially.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple


class Substitution(NamedTuple):
    path: str
    old: str
    new: str
    why: str


RPATH = "$ORIGIN/../../../..;$ORIGIN/../../torch/lib;$ORIGIN/../../tensorflow;$ORIGIN/../../tensorflow/python"

SUBSTITUTIONS = (
    Substitution("CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)", "one definition of gloo's kDefaultTimeout"),
    Substitution("horovod/torch/CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)", "torch's headers are C++17"),
    Substitution(
        "horovod/tensorflow/CMakeLists.txt", "set(Tensorflow_CXX17 TRUE)", "set(Tensorflow_CXX17 FALSE)", "no second copy of gloo"
    ),
    Substitution(
        "CMakeLists.txt",
        "project(horovod CXX)\n",
        f'project(horovod CXX)\nset(CMAKE_BUILD_WITH_INSTALL_RPATH ON)\nset(CMAKE_INSTALL_RPATH "@SITE_RPATH@{RPATH}")\n',
        "libraries are found from wherever the wheel is installed",
    ),
    Substitution(
        "CMakeLists.txt",
        'string(REPLACE "-O2" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO',
        'string(REPLACE "-O2 -g" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO',
        "no debug information: it is most of the wheel",
    ),
    Substitution(
        "horovod/tensorflow/keras/__init__.py", "    from keras import backend as K", "    K = keras.backend", "TensorFlow from 2.16 on"
    ),
    Substitution(
        "horovod/tensorflow/keras/callbacks.py", "    from keras import backend as K", "    K = keras.backend", "TensorFlow from 2.16 on"
    ),
    Substitution(
        "horovod/runner/mpi_run.py",
        "elif 'MPICH' in output:",
        "elif 'MPICH' in output or 'HYDRA' in output:",
        "horovodrun --mpi with Hydra",
    ),
    # Operations for XLA on GPUs, which Horovod leaves out anyway unless HOROVOD_ENABLE_XLA_OPS is set.
    Substitution(
        "horovod/tensorflow/CMakeLists.txt",
        'list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc")\n',
        "",
        "highwayhash/arch_specific.h is missing",
    ),
)

WITH_GPU = (
    # Horovod declares this function, which TensorFlow no longer has.
    Substitution(
        "horovod/tensorflow/mpi_ops.cc",
        "#endif // HAVE_GPU\n\n// Undef LOG macro from TensorFlow",
        """namespace stream_executor::gpu {
GpuStreamHandle AsGpuStreamValue(Stream* stream) { return static_cast<GpuStreamHandle>(stream->platform_specific_handle().stream); }
}
#endif // HAVE_GPU

// Undef LOG macro from TensorFlow""",
        "AsGpuStreamValue is missing",
    ),
    Substitution(
        "CMakeLists.txt",
        'set(CMAKE_CUDA_RUNTIME_LIBRARY "Static")',
        'set(CMAKE_CUDA_RUNTIME_LIBRARY "Shared")',
        "PyTorch's CUDA runtime, not one more inside of Horovod",
    ),
    # TensorFlow's library has the functions of the CUDA runtime too, of CUDA 12, and offers them to the whole process: the loader would
    # prefer them to those of any other library.
    Substitution(
        "horovod/tensorflow/CMakeLists.txt",
        "list(APPEND TF_LINKER_LIBS ${Tensorflow_LIBRARIES})",
        "list(APPEND TF_LINKER_LIBS -Wl,--whole-archive,${CUDA_cudart_static_LIBRARY},--no-whole-archive ${Tensorflow_LIBRARIES})",
        "kernels of CUDA 13 are started by the runtime of CUDA 13, which Horovod for TensorFlow has inside",
    ),
    Substitution(
        "CMakeLists.txt",
        'set(CMAKE_INSTALL_RPATH "@SITE_RPATH@',
        'set(CMAKE_INSTALL_RPATH "@SITE_RPATH@$ORIGIN/../../nvidia/nccl/lib;$ORIGIN/../../nvidia/cu13/lib;',
        "NCCL and the CUDA runtime are those of PyTorch's wheels",
    ),
)

# PyTorch's build for GPUs beside an nvcc would make Horovod for PyTorch one for GPUs too.
WITHOUT_GPU = (
    Substitution(
        "cmake/Modules/FindPytorch.cmake",
        "(torch.version.cuda is not None) and (CUDA_HOME is not None)",
        "False",
        "Horovod for CPUs, whatever PyTorch is built for",
    ),
)

# Not HOROVOD_CPU…, which Horovod reads when it runs.
BUILD_FLAG = re.compile(r"HOROVOD_(WITH|GPU|NCCL|CUDA)[A-Z_]*")
FLAGS = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_CPU_OPERATIONS": "MPI",
}


# Login nodes are shared.
MAX_JOBS = 8


class BuildError(Exception):
    """The reason why the build stopped and what to do, in one line."""


def substitute(text: str, substitution: Substitution) -> str:
    """Makes one substitution in a text. Raises BuildError unless the old text occurs exactly once."""
    count = text.count(substitution.old)
    if count != 1:
        raise BuildError(
            f"{substitution.path}: {substitution.old.strip()!r} occurs {count} times instead of once; this source needs other substitutions"
        )
    return text.replace(substitution.old, substitution.new)


def build_flags(environ: Mapping[str, str], cuda_home: str | None = None) -> dict[str, str]:
    """Returns the variables of Horovod's build, overridden by the user's. Variables that Horovod reads at run time are ignored."""
    of_user = {name: value for name, value in environ.items() if BUILD_FLAG.fullmatch(name) and value}
    return FLAGS | ({"HOROVOD_GPU_OPERATIONS": "NCCL"} if cuda_home else {}) | of_user


def substitutions_for(flags: Mapping[str, str], torch_version: str) -> tuple[Substitution, ...]:
    if flags.get("HOROVOD_GPU_OPERATIONS"):
        return SUBSTITUTIONS + WITH_GPU
    return SUBSTITUTIONS if torch_version.endswith("+cpu") else SUBSTITUTIONS + WITHOUT_GPU


def mpi_of(mpicc: str | None) -> tuple[str, str | None]:
    """Returns (identity, library folder) of the MPI: the environment's mpich, or a site's by its mpicc."""
    if mpicc is None:
        return f"mpich {version('mpich')}", None
    shown = subprocess.run([mpicc, "-show"], capture_output=True, text=True, check=False)
    if shown.returncode:
        raise BuildError(f"{mpicc} -show failed; TANDEM_MPICC must be the mpicc of MPICH, Open MPI or a vendor's MPI")
    folders = re.findall(r"(?:^|\s)-L\s*(\S+)", shown.stdout)
    return f"{os.path.realpath(mpicc)} {shown.stdout.strip()}", folders[-1] if folders else None


def locations(cuda_home: str, folder: Path) -> dict[str, str]:
    """Returns the variables by which the build finds CUDA and PyTorch's NCCL.

    The library of NCCL gets the name that the linker looks for, in `folder`.
    """
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        raise BuildError("PyTorch is not installed; run launch/setup.sh")
    nccl = Path(torch.origin).parents[1] / "nvidia/nccl"
    (folder / "libnccl.so").symlink_to(nccl / "lib/libnccl.so.2")
    of_nccl = {"HOROVOD_NCCL_INCLUDE": f"{nccl}/include", "HOROVOD_NCCL_LIB": str(folder), "HOROVOD_NCCL_LINK": "SHARED"}
    return of_nccl | {"CUDA_HOME": cuda_home, "HOROVOD_CUDA_HOME": cuda_home}


def version_line(compiler: str, line: int) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[line]


def fingerprint(horovod_version: str, flags: Mapping[str, str], mpi: str, compiler: str) -> str:
    """Returns the cache key of a wheel: a hash of everything that affects it."""
    inputs = {
        "horovod": horovod_version,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "libc": platform.libc_ver(),
        "packages": {name: version(name) for name in ("torch", "numpy", "cmake", tensorflow_package())},
        "mpi": mpi,
        "compiler": compiler,
        "flags": flags,
        "substitutions": substitutions_for(flags, version("torch")),
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]


def tensorflow_package() -> str:
    for name in ("tensorflow-cpu", "tensorflow"):
        with contextlib.suppress(ModuleNotFoundError):
            version(name)
            return name
    raise BuildError("TensorFlow is not installed; run launch/setup.sh")


def say(text: str) -> None:
    print(f"setup:         {text}", file=sys.stderr, flush=True)


def unpack_source(horovod_version: str, folder: Path) -> Path:
    """Downloads and unpacks Horovod's source distribution; returns its top folder."""
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"]
    result = subprocess.run([*command, "--dest", str(folder), f"horovod=={horovod_version}"], capture_output=True, text=True, check=False)
    if result.returncode:
        missing = re.search("No matching distribution found for .*", result.stderr)
        sys.stderr.write("" if missing else result.stderr)
        reason = missing[0] if missing else "see its messages above"
        raise BuildError(f"pip finds no source of Horovod: {reason}; without internet see launch/setup/README.md")
    shutil.unpack_archive(next(folder.glob("horovod-*.tar.gz")), folder)
    return folder / f"horovod-{horovod_version}"


def num_jobs(environ: Mapping[str, str], num_cores: int) -> int:
    """Returns how many compilers run at once: TANDEM_BUILD_JOBS, else a part of what a login node has."""
    text = environ.get("TANDEM_BUILD_JOBS") or str(min(num_cores, MAX_JOBS))
    if not re.fullmatch(r"[1-9]\d{0,3}", text):
        raise BuildError(f"TANDEM_BUILD_JOBS is {text!r}; it must be a number from 1 to 9999")
    return int(text)


def compile_wheel(source: Path, flags: Mapping[str, str], programs: Iterable[str], log: Path) -> Path:
    """Compiles the changed source into a wheel in its parent folder and returns the wheel. Reports the progress.

    The folders of `programs` come first on PATH.
    """
    bins = [str(Path(program).parent) for program in programs]
    environ = os.environ | flags | {"PATH": os.pathsep.join([*bins, os.environ["PATH"]])}
    environ.setdefault("MAKEFLAGS", f"-j{num_jobs(os.environ, len(os.sched_getaffinity(0)))}")
    wheel = [sys.executable, "-P", "-m", "pip", "wheel", "--verbose", "--no-build-isolation", "--no-deps"]
    command = [*wheel, "--wheel-dir", str(source.parent), str(source)]
    shown_percent = 0
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as build, log.open("w") as out:
        for line in build.stdout or ():
            out.write(line)
            progress = re.search(r"\[ *(\d+)%\]", line)
            if progress and int(progress[1]) >= shown_percent + 5:
                shown_percent = int(progress[1])
                say(f"compiled {shown_percent} %")
    if build.returncode:
        sys.stderr.write("".join(log.read_text().splitlines(keepends=True)[-40:]))
        raise BuildError(f"the compiler failed; the complete log is {log}")
    return next(source.parent.glob("horovod-*.whl"))


def build(horovod_version: str, cache: Path, mpicc: str | None, cuda_home: str | None) -> Path:
    """Returns the path of the Horovod wheel for this environment, built unless it is in the cache."""
    flags = build_flags(os.environ, cuda_home)
    mpi, site_folder = mpi_of(mpicc)
    nvcc = f"{cuda_home}/bin/nvcc" if cuda_home else None
    compiler = version_line("g++", 0) + (version_line(nvcc, -1) if nvcc else "")
    folder = cache / "wheels" / fingerprint(horovod_version, flags, mpi, compiler)
    cached = next(folder.glob("horovod-*.whl"), None)
    if cached:
        say(f"cached wheel {cached}")
        return cached
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="build-", dir=cache) as scratch:
        say(f"downloading the source of Horovod {horovod_version}")
        source = unpack_source(horovod_version, Path(scratch))
        for substitution in substitutions_for(flags, version("torch")):
            path = source / substitution.path
            path.write_text(substitute(path.read_text(), substitution))
        lists = source / "CMakeLists.txt"
        lists.write_text(lists.read_text().replace("@SITE_RPATH@", f"{site_folder};" if site_folder else ""))
        say("compiling")
        places = locations(cuda_home, Path(scratch)) if cuda_home else {}
        programs = [program for program in (mpicc, sys.executable, nvcc) if program]
        wheel = compile_wheel(source, places | flags, programs, cache / "horovod-build.log")
        shutil.copy2(wheel, folder / f"{wheel.name}.part")
        os.replace(folder / f"{wheel.name}.part", folder / wheel.name)
    say(f"built in {time.monotonic() - started:.0f} s")
    return folder / wheel.name


def main() -> None:
    parser = argparse.ArgumentParser(description="Builds a Horovod wheel from its released source, and prints its path.")
    parser.add_argument("version", help="version of Horovod, pinned in environment.yml")
    parser.add_argument("--cache", type=Path, required=True, help="folder of the built wheels")
    parser.add_argument("--mpicc", help="mpicc of a site's MPI (default: the environment's mpich)")
    parser.add_argument("--cuda-home", help="folder of the CUDA toolkit (default: a build without GPU operations)")
    arguments = parser.parse_args()
    try:
        print(build(arguments.version, arguments.cache, arguments.mpicc, arguments.cuda_home))
    except BuildError as error:
        sys.exit(f"setup: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

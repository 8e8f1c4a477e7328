"""Builds a Horovod wheel for the environment whose Python runs this file: `python build_horovod.py --output FOLDER`.

The released source does not compile against current PyTorch and TensorFlow. SUBSTITUTIONS are the required changes. Each must
match exactly once, so that a new release of Horovod stops the build instead of being changed partially. This file imports the
standard library alone, so that it can be copied to where it is needed. The set-up of Tandem calls it with --cache.
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
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple, NoReturn


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

# After the substitution that makes it 17.
CPP_20 = Substitution(
    "horovod/torch/CMakeLists.txt", "set(CMAKE_CXX_STANDARD 17)", "set(CMAKE_CXX_STANDARD 20)", "headers of PyTorch 2.15 are C++20"
)

# Not HOROVOD_CPU…, which Horovod reads when it runs.
BUILD_FLAG = re.compile(r"HOROVOD_(WITH|GPU|NCCL|CUDA)[A-Z_]*")
FLAGS = {"HOROVOD_WITH_GLOO": "1", "HOROVOD_WITHOUT_MXNET": "1"}


class Framework(NamedTuple):
    """What Horovod is built for: its packages (one must be installed), its module, and the module's function that makes a tensor."""

    packages: tuple[str, ...]
    module: str
    tensor: str


FRAMEWORKS = {
    "PyTorch": Framework(("torch",), "torch", "tensor"),
    "TensorFlow": Framework(("tensorflow-cpu", "tensorflow"), "tensorflow", "constant"),
}
ALL_REDUCE = """
import {module}, horovod.{module} as hvd
hvd.init()
total = float(hvd.allreduce({module}.{tensor}([1.0 + hvd.rank()]), op=hvd.Sum)[0])
assert hvd.size() == 2 and total == 3, f"{{hvd.size()}} ranks have the sum {{total}}"
if hvd.rank() == 0:
    print(*(name for name in ("mpi", "gloo", "nccl", "cuda", "rocm") if getattr(hvd, f"{{name}}_built")()), sep=", ")
"""
# What setup.py and its programs import, beside a framework.
NEEDED = ("setuptools", "wheel", "cmake", "cloudpickle", "packaging", "psutil", "pyyaml")


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


def installed_version(*packages: str) -> str | None:
    """Returns the version of the first of these packages that is installed, or None."""
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            return f"{package} {version(package)}"
    return None


def frameworks_here(without: str | None = None) -> dict[str, str]:
    """Returns package and version of each installed framework but `without`. Raises BuildError if there is none."""
    packages = {name: installed_version(*framework.packages) for name, framework in FRAMEWORKS.items() if name.lower() != without}
    installed = {name: package for name, package in packages.items() if package}
    if not installed:
        raise BuildError(f"{' and '.join(packages)}: not installed beside {sys.executable}; install what Horovod is for first")
    return installed


def build_flags(environ: Mapping[str, str], frameworks: Iterable[str], with_mpi: bool, cuda_home: str | None = None) -> dict[str, str]:
    """Returns the variables of Horovod's build, overridden by the user's. Variables that Horovod reads at run time are ignored."""
    parts = {name.upper(): name in frameworks for name in FRAMEWORKS} | {"MPI": with_mpi}
    flags = FLAGS | {f"HOROVOD_{'WITH' if present else 'WITHOUT'}_{part}": "1" for part, present in parts.items()}
    flags["HOROVOD_CPU_OPERATIONS"] = "MPI" if with_mpi else "GLOO"
    of_user = {name: value for name, value in environ.items() if BUILD_FLAG.fullmatch(name) and value}
    return flags | ({"HOROVOD_GPU_OPERATIONS": "NCCL"} if cuda_home else {}) | of_user


def substitutions_for(flags: Mapping[str, str], torch_package: str | None) -> tuple[Substitution, ...]:
    chosen = SUBSTITUTIONS
    if flags.get("HOROVOD_GPU_OPERATIONS"):
        chosen += WITH_GPU
    elif torch_package and not torch_package.endswith("+cpu"):
        chosen += WITHOUT_GPU
    return (*chosen, CPP_20) if torch_package and torch_needs_cpp_20() else chosen


def torch_needs_cpp_20() -> bool:
    """Returns whether the headers of PyTorch refuse an older standard than C++20, as those of 2.15 do."""
    torch = importlib.util.find_spec("torch")
    header = Path(torch.origin).with_name("include") / "torch/csrc/api/include/torch/all.h" if torch and torch.origin else None
    return header is not None and header.exists() and "C++20" in header.read_text()


def find_mpicc() -> str | None:
    """Returns the mpicc beside this Python, else on PATH, if it finds its header; else None: Horovod has Gloo without MPI."""
    mpicc = shutil.which("mpicc", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if mpicc is None:
        say("without MPI, for there is no mpicc")
        return None
    compiled = subprocess.run([mpicc, "-fsyntax-only", "-xc", "-"], input="#include <mpi.h>\n", capture_output=True, text=True, check=False)
    if compiled.returncode:
        say(f"without MPI, for {mpicc} finds no mpi.h")
        return None
    return mpicc


def mpi_of(mpicc: str) -> tuple[str, str | None]:
    """Returns (identity, library folder) of the MPI of a compiler; no folder for the mpich package beside this Python."""
    package = installed_version("mpich")
    if package and Path(mpicc).parent == Path(sys.executable).parent:
        return package, None
    shown = subprocess.run([mpicc, "-show"], capture_output=True, text=True, check=False)
    if shown.returncode or not shown.stdout.strip():
        raise BuildError(f"{mpicc} -show failed; it must be the mpicc of MPICH, Open MPI or a vendor's MPI")
    folders = re.findall(r"(?:^|\s)-L\s*(\S+)", shown.stdout)
    return f"{os.path.realpath(mpicc)} {shown.stdout.strip()}", folders[-1] if folders else None


def locations(cuda_home: str, folder: Path) -> dict[str, str]:
    """Returns the variables by which the build finds CUDA and PyTorch's NCCL.

    The library of NCCL gets the name that the linker looks for, in `folder`.
    """
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        raise BuildError("GPUs need the NCCL of PyTorch's wheel, and PyTorch is not installed; install it, or leave --cuda-home out")
    nccl = Path(torch.origin).parents[1] / "nvidia/nccl"
    (folder / "libnccl.so").symlink_to(nccl / "lib/libnccl.so.2")
    of_nccl = {"HOROVOD_NCCL_INCLUDE": f"{nccl}/include", "HOROVOD_NCCL_LIB": str(folder), "HOROVOD_NCCL_LINK": "SHARED"}
    return of_nccl | {"CUDA_HOME": cuda_home, "HOROVOD_CUDA_HOME": cuda_home}


def version_line(compiler: str, line: int) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[line]


def fingerprint(horovod_version: str, frameworks: Mapping[str, str], flags: Mapping[str, str], mpi: str | None, compiler: str) -> str:
    """Returns the cache key of a wheel: a hash of everything that affects it."""
    packages = [*frameworks.values(), installed_version("numpy"), installed_version("cmake")]
    inputs = {
        "horovod": horovod_version,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "libc": platform.libc_ver(),
        "packages": dict(package.split() for package in packages if package),
        "mpi": mpi,
        "compiler": compiler,
        "flags": flags,
        "substitutions": substitutions_for(flags, frameworks.get("PyTorch")),
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]


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


def compile_wheel(source: Path, flags: Mapping[str, str], programs: Iterable[str], log: Path) -> Path:
    """Compiles the changed source into a wheel in its parent folder and returns the wheel. Reports the progress.

    The folders of `programs` come first on PATH.
    """
    bins = [str(Path(program).parent) for program in programs]
    # A site's mpicc may have an older cmake beside it. CMake 4 refuses what gloo asks for without the minimum.
    cmake = {"HOROVOD_CMAKE": str(Path(sys.executable).with_name("cmake")), "CMAKE_POLICY_VERSION_MINIMUM": "3.5"}
    environ = os.environ | cmake | dict(flags) | {"PATH": os.pathsep.join([*bins, os.environ["PATH"]])}
    environ.setdefault("MAKEFLAGS", f"-j{min(len(os.sched_getaffinity(0)), MAX_JOBS)}")
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


class Build(NamedTuple):
    """What a wheel is built from."""

    horovod_version: str
    frameworks: Mapping[str, str]
    mpicc: str | None
    cuda_home: str | None

    @property
    def flags(self) -> dict[str, str]:
        return build_flags(os.environ, self.frameworks, self.mpicc is not None, self.cuda_home)

    @property
    def nvcc(self) -> str | None:
        return f"{self.cuda_home}/bin/nvcc" if self.cuda_home else None


def build_wheel(parts: Build, folder: Path) -> Path:
    """Builds a wheel into a folder and returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    site_folder = mpi_of(parts.mpicc)[1] if parts.mpicc else None
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as scratch:
        say(f"downloading the source of Horovod {parts.horovod_version}")
        source = unpack_source(parts.horovod_version, Path(scratch))
        for substitution in substitutions_for(parts.flags, parts.frameworks.get("PyTorch")):
            path = source / substitution.path
            path.write_text(substitute(path.read_text(), substitution))
        lists = source / "CMakeLists.txt"
        lists.write_text(lists.read_text().replace("@SITE_RPATH@", f"{site_folder};" if site_folder else ""))
        say("compiling, 2 to 10 minutes")
        variables = locations(parts.cuda_home, Path(scratch)) if parts.cuda_home else {}
        programs = [program for program in (parts.mpicc, sys.executable, parts.nvcc) if program]
        wheel = compile_wheel(source, variables | parts.flags, programs, folder / "horovod-build.log")
        shutil.copy2(wheel, folder / f"{wheel.name}.part")
        os.replace(folder / f"{wheel.name}.part", folder / wheel.name)
    say(f"built in {time.monotonic() - started:.0f} s")
    return folder / wheel.name


def cached_wheel(parts: Build, cache: Path) -> Path:
    """Returns the path of the wheel in the cache, where it is built unless it is there."""
    mpi = mpi_of(parts.mpicc)[0] if parts.mpicc else None
    compiler = version_line("g++", 0) + (version_line(parts.nvcc, -1) if parts.nvcc else "")
    folder = cache / "wheels" / fingerprint(parts.horovod_version, parts.frameworks, parts.flags, mpi, compiler)
    cached = next(folder.glob("horovod-*.whl"), None)
    if cached:
        say(f"cached wheel {cached}")
        return cached
    return build_wheel(parts, folder)


def check(wheel: Path, parts: Build) -> None:
    """Lets two ranks all-reduce a number in each framework, with the wheel in a folder of its own. Prints what the wheel contains."""
    with tempfile.TemporaryDirectory(prefix="check-", dir=wheel.parent) as folder:
        install = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, str(wheel)]
        subprocess.run(install, check=True)
        libraries = [f"{sys.prefix}/lib", (mpi_of(parts.mpicc)[1] or "") if parts.mpicc else "", os.environ.get("LD_LIBRARY_PATH", "")]
        environ = os.environ | {"PYTHONPATH": folder, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries))}
        # Open MPI refuses root, and more ranks than cores, without these.
        environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        over_gloo = [sys.executable, "-m", "horovod.runner.launch", "-np", "2", "--gloo"]
        launcher = [str(Path(parts.mpicc).with_name("mpiexec")), "-n", "2"] if parts.mpicc else over_gloo
        for name, package in parts.frameworks.items():
            framework = FRAMEWORKS[name]
            command = [*launcher, sys.executable, "-c", ALL_REDUCE.format(module=framework.module, tensor=framework.tensor)]
            ranks = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False)
            if ranks.returncode:
                sys.stderr.write(ranks.stdout + ranks.stderr)
                raise BuildError(f"two ranks cannot all-reduce with {package}; their messages are above, and the wheel is {wheel}")
            contents = ranks.stdout.strip().splitlines()[-1].rpartition(":")[2]
            say(f"two ranks all-reduce with {package}; the wheel has {contents}")


def expect_packages() -> None:
    """Raises BuildError if a package that building needs is missing."""
    missing = [name for name in NEEDED if not installed_version(name)]
    if missing:
        raise BuildError(f"building needs {', '.join(missing)}; run: {sys.executable} -m pip install {' '.join(missing)}")


def pinned_version() -> str:
    """Returns the version of Horovod that environment.yml pins. Raises BuildError where this file was copied without it."""
    path = Path(__file__).resolve().parents[2] / "environment.yml" if len(Path(__file__).resolve().parents) > 2 else None
    pin = re.search(r'TANDEM_HOROVOD_VERSION: "(.+)"', path.read_text()) if path and path.exists() else None
    if pin is None:
        raise BuildError("there is no environment.yml that pins Horovod; give its version, such as 0.28.1, first")
    return pin[1]


class Parser(argparse.ArgumentParser):
    """Raises BuildError, where argparse prints how the program is used."""

    def error(self, message: str) -> NoReturn:
        raise BuildError(f"{message}; see --help")


def main() -> None:
    parser = Parser(description="Builds a Horovod wheel for the environment of this Python, and prints the wheel's path.")
    parser.add_argument("version", nargs="?", help="version of Horovod (default: the one pinned in environment.yml)")
    folders = parser.add_mutually_exclusive_group(required=True)
    folders.add_argument("--output", type=Path, metavar="FOLDER", help="build into this folder, and check the wheel with two ranks")
    folders.add_argument("--cache", type=Path, metavar="FOLDER", help="take an equal wheel from this folder, where there is one; no check")
    parser.add_argument("--without", choices=[name.lower() for name in FRAMEWORKS], help="leave a framework out that is installed")
    parser.add_argument(
        "--mpicc", help="mpicc of a site's MPI (default: beside this Python, or on PATH; without one Horovod has Gloo alone)"
    )
    parser.add_argument("--cuda-home", help="folder of the CUDA toolkit (default: a build without GPU operations)")
    try:
        if "" in sys.argv:
            parser.error("an argument is empty")
        arguments = parser.parse_args()
        parts = Build(
            arguments.version or pinned_version(),
            frameworks_here(arguments.without),
            arguments.mpicc or find_mpicc(),
            arguments.cuda_home,
        )
        expect_packages()
        if arguments.cache:
            print(cached_wheel(parts, arguments.cache))
        else:
            wheel = build_wheel(parts, arguments.output.resolve())
            check(wheel, parts)
            print(wheel)
    except (BuildError, OSError) as error:
        print(f"setup: {f'{error.filename}: {error.strerror}' if isinstance(error, OSError) else error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

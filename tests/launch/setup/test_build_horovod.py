"""Substitutions in Horovod's source, and the cache key of the wheel."""

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from launch.setup import build_horovod
from launch.setup.build_horovod import (
    CPP_20,
    SUBSTITUTIONS,
    WITH_GPU,
    WITHOUT_GPU,
    BuildError,
    Substitution,
    build_flags,
    fingerprint,
    substitute,
)

SUBSTITUTION = Substitution("some/CMakeLists.txt", "set(STANDARD 14)", "set(STANDARD 17)", "the headers are C++17")
GPU = {"HOROVOD_GPU_OPERATIONS": "NCCL"}
BOTH = ("PyTorch", "TensorFlow")
ALL_FLAGS = build_flags({}, BOTH, with_mpi=True)


@pytest.mark.parametrize(("text", "count"), [("a\nb\n", 0), ("set(STANDARD 14)\n" * 2, 2)])
def test_what_is_there_once_is_changed_and_else_stops_the_build(text, count):
    assert substitute("a\nset(STANDARD 14)\nb\n", SUBSTITUTION) == "a\nset(STANDARD 17)\nb\n"
    with pytest.raises(BuildError) as raised:
        substitute(text, SUBSTITUTION)
    for part in ("some/CMakeLists.txt", "'set(STANDARD 14)'", f"{count} times instead of once"):
        assert part in str(raised.value)


def test_a_folder_without_the_source_is_named(tmp_path, monkeypatch):
    for name, value in {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BuildError, match=r"No matching distribution found for horovod==0\.0\.1; without internet see"):
        build_horovod.unpack_source("0.0.1", tmp_path)


@pytest.mark.parametrize(
    ("flags", "torch_package", "expected"),
    [
        ({}, "torch 2.13.0+cpu", SUBSTITUTIONS),
        ({}, None, SUBSTITUTIONS),
        ({}, "torch 2.13.0", SUBSTITUTIONS + WITHOUT_GPU),
        ({"HOROVOD_GPU_OPERATIONS": ""}, "torch 2.13.0+cu130", SUBSTITUTIONS + WITHOUT_GPU),
        (GPU, "torch 2.13.0", SUBSTITUTIONS + WITH_GPU),
    ],
)
def test_gpu_code_is_changed_only_where_it_is_built_or_would_be(flags, torch_package, expected, monkeypatch):
    monkeypatch.setattr(build_horovod, "torch_needs_cpp_20", lambda: False)
    assert build_horovod.substitutions_for(flags, torch_package) == expected


@pytest.mark.parametrize(("cpp", "expected"), [("C++17 or later", SUBSTITUTIONS), ("C++20 or later", (*SUBSTITUTIONS, CPP_20))])
def test_the_standard_is_that_of_pytorchs_headers(cpp, expected, tmp_path, monkeypatch):
    header = tmp_path / "torch/include/torch/csrc/api/include/torch/all.h"
    header.parent.mkdir(parents=True)
    header.write_text(f"#error {cpp} compatible compiler is required\n")
    monkeypatch.setattr(build_horovod.importlib.util, "find_spec", lambda name: SimpleNamespace(origin=tmp_path / name / "__init__.py"))
    assert build_horovod.substitutions_for({}, "torch 2.15.0+cpu") == expected


@pytest.mark.parametrize(
    ("environ", "cuda_home", "changes"),
    [
        ({"PATH": "/bin", "CFLAGS": "-O0", "MY_HOROVOD_FLAG": "1"}, None, {}),
        (GPU, None, GPU),
        # Horovod reads it when it runs.
        ({"HOROVOD_CPU_OPERATIONS": "GLOO"}, None, {}),
        ({"HOROVOD_WITHOUT_GLOO": "1"}, None, {"HOROVOD_WITHOUT_GLOO": "1"}),
        ({}, "/cuda", GPU),
        ({"HOROVOD_GPU_OPERATIONS": "MPI"}, "/cuda", {"HOROVOD_GPU_OPERATIONS": "MPI"}),
    ],
)
def test_the_users_horovod_variables_go_over_ours(environ, cuda_home, changes):
    assert build_flags(environ, BOTH, with_mpi=True, cuda_home=cuda_home) == ALL_FLAGS | changes
    without = build_flags({}, ["PyTorch"], with_mpi=False)
    assert without["HOROVOD_CPU_OPERATIONS"] == "GLOO"
    assert {"HOROVOD_WITH_PYTORCH", "HOROVOD_WITHOUT_TENSORFLOW", "HOROVOD_WITHOUT_MPI"} <= without.keys()


@pytest.mark.parametrize(
    ("removed", "without", "expected"),
    [
        ((), None, ["PyTorch", "TensorFlow"]),
        ((), "tensorflow", ["PyTorch"]),
        (("torch",), None, ["TensorFlow"]),
        (("torch",), "tensorflow", "PyTorch: not installed beside"),
        (("torch", "tensorflow-cpu"), None, "PyTorch and TensorFlow: not installed beside"),
    ],
)
def test_horovod_is_built_for_the_frameworks_that_are_installed(packages, removed, without, expected):
    for name in removed:
        del packages[name]
    if isinstance(expected, list):
        assert list(build_horovod.frameworks_here(without)) == expected
    else:
        with pytest.raises(BuildError, match=expected):
            build_horovod.frameworks_here(without)


@pytest.mark.parametrize(("script", "expected"), [(None, False), ("exit 1", False), ("exit 0", True)])
def test_an_mpicc_counts_that_finds_its_header(script, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build_horovod.sys, "executable", str(tmp_path / "python"))
    mpicc = tmp_path / "mpicc"
    if script:
        mpicc.write_text(f"#!/bin/sh\n{script}\n")
        mpicc.chmod(0o755)
    assert build_horovod.find_mpicc() == (str(mpicc) if expected else None)
    assert ("without MPI" in capsys.readouterr().err) == (not expected)


def test_a_file_that_was_copied_alone_asks_for_the_version(tmp_path):
    copied = tmp_path / "build_horovod.py"
    copied.write_text(Path(build_horovod.__file__).read_text())
    process = subprocess.run([sys.executable, copied, "--output", tmp_path], capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert process.stderr == "setup: there is no environment.yml that pins Horovod; give its version, such as 0.28.1, first\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "one of the arguments --output --cache is required; see --help"),
        (["--output", ""], "an argument is empty; see --help"),
        (["--output", "/dev/null/x"], "/dev/null/x: Not a directory"),
        (["--cache", "FOLDER", "--mpicc", "/none"], "/none: No such file or directory"),
        (["--cache", "FOLDER", "--mpicc", "true"], "true -show failed; it must be the mpicc of MPICH, Open MPI or a vendor's MPI"),
        (["--cache", "FOLDER", "--cuda-home", "/none"], "/none/bin/nvcc: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, tmp_path):
    command = [sys.executable, build_horovod.__file__, *(argument.replace("FOLDER", str(tmp_path)) for argument in arguments)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (2, f"setup: {message}\n")


def test_the_build_finds_the_nccl_of_pytorch_under_the_name_that_the_linker_looks_for(tmp_path, monkeypatch):
    monkeypatch.setattr(build_horovod.importlib.util, "find_spec", lambda name: SimpleNamespace(origin=tmp_path / name / "__init__.py"))
    variables = build_horovod.locations("/cuda", tmp_path)
    assert (tmp_path / "libnccl.so").readlink() == tmp_path / "nvidia/nccl/lib/libnccl.so.2"
    assert variables["HOROVOD_NCCL_INCLUDE"] == f"{tmp_path}/nvidia/nccl/include"
    assert variables["CUDA_HOME"] == variables["HOROVOD_CUDA_HOME"] == "/cuda"


PLAIN = {"horovod_version": "0.28.1", "flags": ALL_FLAGS, "mpi": "mpich 5.0.2", "compiler": "g++ 12.2.0"}


@pytest.fixture(autouse=True)
def packages(monkeypatch):
    """The installed packages by name, for a test to change."""
    installed = {"torch": "2.13.0", "numpy": "2.4.6", "cmake": "3.31.10", "tensorflow-cpu": "2.21.0", "rich": "15.0.0", "mpi4py": "4.1.2"}

    def version(name):
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(build_horovod, "version", version)
    return installed


def key(**changes):
    return fingerprint(frameworks=build_horovod.frameworks_here(), **PLAIN | changes)


def test_the_name_changes_with_all_that_a_wheel_is_built_from_and_with_nothing_else(packages, monkeypatch):
    plain = key()
    assert re.fullmatch("[0-9a-f]{16}", plain)
    arguments = ({"horovod_version": "0.29.0"}, {"flags": ALL_FLAGS | GPU}, {"mpi": "mpich 5.0.3"}, {"compiler": "g++ 13.1.0"})
    names = [plain, *(key(**changes) for changes in arguments)]
    for package in ("torch", "numpy", "cmake", "tensorflow-cpu"):
        with monkeypatch.context() as changed:
            changed.setitem(packages, package, "9.9")
            names.append(key())
    with monkeypatch.context() as changed:
        changed.delitem(packages, "tensorflow-cpu")
        changed.setitem(packages, "tensorflow", "2.21.0")
        names.append(key())
    for module, name, value in (
        (build_horovod.platform, "python_version", lambda: "3.9.0"),
        (build_horovod.platform, "machine", lambda: "aarch64"),
        (build_horovod.platform, "libc_ver", lambda: ("musl", "1.2")),
        (build_horovod, "SUBSTITUTIONS", (*SUBSTITUTIONS, SUBSTITUTION)),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(module, name, value)
            names.append(key())
    assert len(set(names)) == len(names)
    packages |= {"rich": "16.0.0", "mpi4py": "5.0.0"}
    assert key(flags=dict(reversed(ALL_FLAGS.items()))) == plain

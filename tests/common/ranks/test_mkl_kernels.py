"""The library with which MKL takes the kernels for the processor's instruction sets, and the runs that have it."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from common.config import Settings
from common.declarations import ROOT
from common.ranks import mkl_kernels
from common.ranks.launcher_variables import Ranks
from frameworks.shared.pytorch import devices
from launch.run import available
from launch.run.plan import Job
from tests.support.mistakes import refused

needs_mkl = pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="this PyTorch has no MKL")
ABLE = {"cpu": None, "cuda": None}
FAST = Settings(mkl_kernels="fast", device="cpu")
# A rank that computes a matrix product on its device.
RANK = """
import frameworks, torch
from common.config import Settings
from common.ranks.launcher_variables import Ranks
from frameworks.shared.pytorch import devices
devices.pick_device(Settings(mkl_kernels="fast", device="cpu"), Ranks())
torch.mm(torch.ones(64, 64), torch.ones(64, 64))
"""


@pytest.fixture(scope="module", autouse=True)
def library():
    """The library of this environment, built where it is missing."""
    if not mkl_kernels.LIBRARY.exists():
        mkl_kernels.build()


def libraries_asked(folder, *arguments):
    """The names of the libraries whose function MKL calls in a rank with these arguments, as the loader prints them (ld.so(8))."""
    environ = os.environ | {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(folder / "bindings")}
    command = [sys.executable, "-c", RANK, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert not done.returncode, done.stderr
    lines = [line for path in folder.glob("bindings.*") for line in path.read_text().splitlines() if f"`{mkl_kernels.FUNCTION}'" in line]
    return {Path(line.partition(" to ")[2].split()[0]).name for line in lines}


# What it calls changes with the pin of PyTorch alone, and the loader writes every symbol that it binds, which takes seconds.
@pytest.mark.long
@needs_mkl
def test_mkl_asks_the_library_for_the_vendor_where_fast_kernels_are_requested(tmp_path):
    assert libraries_asked(tmp_path, "--seed", "2", "--mkl_kernels=fast", "--epochs", "1") == {mkl_kernels.LIBRARY.name}


@pytest.mark.parametrize(
    ("arguments", "is_loaded"), [(["--mkl-kernels", "fast"], True), (["--mkl-kernels", "default"], False), ([], False)]
)
def test_the_library_is_loaded_where_fast_kernels_are_requested_alone(arguments, is_loaded, monkeypatch):
    loaded = []
    monkeypatch.setattr(ctypes, "CDLL", lambda path, **_: loaded.append(path))
    mkl_kernels.load(arguments)
    assert loaded == [str(mkl_kernels.LIBRARY)] * is_loaded


@needs_mkl
def test_a_process_that_has_imported_pytorch_without_the_library_is_refused(monkeypatch):
    # TensorFlow, if a test has imported it, has the function too.
    monkeypatch.setattr(ctypes, "CDLL", lambda _: None)
    with refused("--mkl-kernels fast takes effect before PyTorch is imported; give it to python -m frameworks.BACKEND"):
        devices.pick_device(FAST, Ranks())


@pytest.mark.parametrize(
    ("has_mkl", "library", "reason"),
    [
        (False, mkl_kernels.LIBRARY, "this PyTorch has no MKL"),
        (
            True,
            Path("/there/is/none.so"),
            "/there/is/none.so is not built; run .venv/bin/python -m common.ranks.mkl_kernels on a node with a compiler",
        ),
    ],
)
def test_a_node_without_mkl_or_without_the_library_is_refused_by_a_run_and_by_a_matrix(has_mkl, library, reason, monkeypatch):
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: has_mkl)
    monkeypatch.setattr(mkl_kernels, "LIBRARY", library)
    mkl_kernels.load(["--mkl-kernels", "fast"])
    with refused(f"--mkl-kernels fast: {reason}"):
        devices.pick_device(FAST, Ranks())
    by_backend = {"ddp": ABLE | {"mkl_kernels": devices.mkl_kernels_problem()}, "horovod_tf": ABLE | {"mkl_kernels": None}}
    for settings, reasons in ((FAST, {"ddp": f"--mkl-kernels fast: {reason}"}), (Settings(), {})):
        jobs = [Job(backend, 2, 2, settings) for backend in by_backend]
        assert available.runnable_by(by_backend, jobs)[1] == reasons


def test_the_library_needs_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(mkl_kernels, "LIBRARY", tmp_path / "libtandemmkl.so")
    assert mkl_kernels.build() == 0
    assert getattr(ctypes.CDLL(str(mkl_kernels.LIBRARY)), mkl_kernels.FUNCTION)() == 1

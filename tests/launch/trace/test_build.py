"""The build of the interposer: its errors, and programs without MPI."""

import sys

import pytest

from common.errors import UserError
from launch.trace import build
from tests.support.mistakes import expect_refused
from tests.support.running import BIN
from tests.support.tracing import run


def test_a_missing_library_is_an_error(monkeypatch, tmp_path):
    assert build.installed() == build.default_library()
    monkeypatch.setattr(build.sys, "prefix", str(tmp_path))
    with pytest.raises(UserError, match=r"libtandemtrace\.so is not built; run \.venv/bin/python -m launch\.trace\.build"):
        build.installed()


@pytest.mark.parametrize(
    ("choices", "mpicc"),
    [("TANDEM_DEVICE=cpu\nTANDEM_MPICC=/opt/mpi/bin/mpicc\n", "/opt/mpi/bin/mpicc"), ("TANDEM_MPICC=\n", f"{sys.prefix}/bin/mpicc")],
)
def test_the_mpi_is_that_of_the_set_up(choices, mpicc):
    assert build.mpicc_of_environment(choices) == mpicc


@pytest.mark.matrix
def test_a_failed_compilation_is_an_error_and_leaves_no_file(tmp_path):
    (tmp_path / "mpicc").write_text(f'#!/bin/bash\ncase "$*" in *-shared*) echo no >&2; exit 1;; esac\nexec {BIN}/mpicc "$@"\n')
    (tmp_path / "mpicc").chmod(0o755)
    path = tmp_path / "lib" / build.NAME
    with pytest.raises(UserError, match=r"could not compile the interposer"):
        build.build(path, str(tmp_path / "mpicc"))
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("mpicc", ["/there/is/none", "cc"])
def test_a_missing_mpi_ends_the_program_with_status_2(mpicc, tmp_path):
    message = "name the mpicc of the MPI to trace"
    expect_refused(message, "launch.trace.build", "--mpicc", mpicc, "--library", tmp_path / "none.so")


LOADED = "import os; maps = open('/proc/self/maps').read(); print('libmpi' in maps, 'tandemtrace' in maps, flush=True); os._exit(4)"


@pytest.mark.parametrize(
    ("command", "status", "printed"),
    [
        (("bash", "-c", "echo here; (exit 3)"), 3, "here\n"),
        ((BIN / "python", "-c", LOADED), 4, "False True\n"),
        ((BIN / "python", "-c", "import os; os.fork() or os._exit(3); os.wait(); os._exit(7)"), 7, ""),
        ((BIN / "python", "-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"), -15, ""),
        ((BIN / "mpiexec", "-n", "1", "bash", "-c", "echo a rank"), 0, "a rank\n"),
    ],
)
def test_programs_without_mpi_are_unaffected(tmp_path, command, status, printed):
    done = run(tmp_path, *command)
    assert (done.status, done.printed) == (status, printed)
    assert not done.folder.exists()

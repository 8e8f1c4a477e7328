"""Variables that would bind the threads of a run or set their number, and the cores that a process was started on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from common.backends import ROOT
from common.process import inherited
from tests.support.mistakes import refused
from tests.support.running import BIN, completed

OWNED = (
    "OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET", "HOROVOD_THREAD_AFFINITY",
    "MPIR_CVAR_PROGRESS_THREAD_AFFINITY", "OMP_DYNAMIC", "OMP_THREAD_LIMIT", "KMP_ALL_THREADS", "MKL_NUM_THREADS", "MKL_DYNAMIC",
    "MKL_DOMAIN_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_MAX_THREADS", "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)  # fmt: skip
# What a run sets itself, what sets neither a binding nor a number, and a launcher's own binding.
LEFT = (
    "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OMP_STACKSIZE", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "MKL_VERBOSE", "HOROVOD_CYCLE_TIME",
    "TF_CPP_MIN_LOG_LEVEL", "SLURM_CPU_BIND", "I_MPI_PIN", "MY_OMP_PLACES", "OMP_PLACES_OF_MINE",
)  # fmt: skip


def test_a_run_owns_its_binding_and_its_threads_and_nothing_else():
    environ = dict.fromkeys((*LEFT, *OWNED), "x")
    assert (set(inherited.owned(environ)), set(inherited.without_owned(environ))) == (set(OWNED), set(LEFT))


def looked(text, **variables):
    """What Python prints in a process of its own, with these variables."""
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=True, timeout=100
    )
    return done.stdout.strip()


IMPORT = """
import os, frameworks, torch
from common.process import inherited
torch.ones(9) + 1
print(os.sched_getaffinity(0) == inherited.CORES, inherited.removed, {*inherited.removed} & {*os.environ})
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a library can bind a process to some of its cores only where it has two")
@pytest.mark.parametrize("variables", [{"OMP_PLACES": "threads", "OMP_PROC_BIND": "spread"}, {"GOMP_CPU_AFFINITY": "0"}])
def test_a_framework_that_is_imported_does_not_bind_the_process_by_a_variable(variables):
    assert looked(IMPORT, **variables) == f"True {variables} set()"


EXPECT = """
import frameworks
from common.process import inherited
try:
    inherited.expect_unbound()
except Exception as problem:
    print(problem)
"""
LIBGOMP = next(Path(sys.prefix).glob("lib/python3*/site-packages/torch/lib/libgomp*"), None)


@pytest.mark.skipif(LIBGOMP is None, reason="this PyTorch has no libgomp of its own")
@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"LD_PRELOAD": str(LIBGOMP)}, ""),
        ({"LD_PRELOAD": str(LIBGOMP), "MKL_NUM_THREADS": "1"}, ""),
        (
            {"LD_PRELOAD": str(LIBGOMP), "OMP_PROC_BIND": "true"},
            "OMP_PROC_BIND was read by the OpenMP library that LD_PRELOAD loads; unset it",
        ),
    ],
)
def test_a_library_that_was_there_before_python_is_named(variables, message):
    assert looked(EXPECT, **variables) == message


def test_a_torchrun_that_has_bound_itself_is_named(monkeypatch):
    monkeypatch.setenv(inherited.TORCHRUN, "7")
    inherited.expect_unbound()
    monkeypatch.setattr(inherited, "removed", {"GOMP_CPU_AFFINITY": "0", "MKL_NUM_THREADS": "2"})
    with refused("GOMP_CPU_AFFINITY was read by torchrun", "; unset it"):
        inherited.expect_unbound()


def test_a_matrix_imports_no_backend_which_would_remove_the_variables_that_it_names():
    done = completed(BIN / "python", "-c", "import sys, launch.matrix; print('frameworks' in sys.modules)")
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr

"""How a rank ends: what it says of a failure, and that its launcher takes a completed run for completed and a failed one for failed."""

import json
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from common.ranks import ending, machine
from common.ranks.messages import Position
from launch.launchers.commands import Launcher, Start
from launch.run import failures
from tests.support import kills, slurm_cluster
from tests.support.running import BIN, ROOT, completed, environ

# Without the abort MPICH's launcher takes ranks for killed at 4, and without the exit handlers at 6.
NUM_RANKS = (4, 6)
# Debian's Open MPI, which mpi4py's wheel takes in the place of MPICH.
OPEN_MPI = shutil.which("mpiexec.openmpi"), Path("/usr/lib/x86_64-linux-gnu/libmpi.so.40")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "MPI4PY_LIBMPI": str(OPEN_MPI[1])}


def leave(launcher, executable, num_ranks, status, variables, num_nodes=1):
    """Returns (exit status, lines printed) of ranks that leave over two seconds, or of which the last fails with a status."""
    program = (str(BIN / "python"), "-m", "tests.support.leaving", "2", str(status))
    start = Start(Launcher(launcher, str(executable)), num_ranks, num_ranks // num_nodes, 1, program, {})
    done = completed(*start.argv(), variables=variables)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def expect_ends(*start, **placement):
    """Ranks that completed end with 0, however long after each other; a rank that fails ends all. None counts as killed."""
    for status in (0, 1):
        ended, lines = leave(*start[:3], status, *start[3:], **placement)
        assert bool(ended) == bool(status), lines
        assert failures.killed_rank(lines, []) is None, lines


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("launcher", "executable", "num_ranks"),
    [*(("mpich", BIN / "mpiexec", num_ranks) for num_ranks in NUM_RANKS), ("torchrun", BIN / "torchrun", NUM_RANKS[0])],
)
def test_ranks_leave_far_apart(launcher, executable, num_ranks):
    expect_ends(launcher, executable, num_ranks, {})


@pytest.mark.matrix
@pytest.mark.skipif(not (OPEN_MPI[0] and OPEN_MPI[1].exists()), reason="Open MPI is not installed")
def test_ranks_leave_far_apart_under_open_mpi():
    expect_ends("openmpi", OPEN_MPI[0], NUM_RANKS[0], AS_ROOT)


@pytest.mark.matrix
@pytest.mark.long
def test_ranks_leave_far_apart_under_srun(tmp_path):
    if why_not := slurm_cluster.why_not():
        pytest.skip(why_not)
    with slurm_cluster.started(tmp_path) as cluster, kills.allocation(cluster, NUM_RANKS[0]) as variables:
        expect_ends("srun", shutil.which("srun"), NUM_RANKS[0], variables, num_nodes=2)


GPU = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 139.81 GiB of which 11.50 MiB is free. Including "
    "non-PyTorch memory, this process has 139.79 GiB memory in use."
)
CPU = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8589934592 bytes. "
TENSORFLOW = (
    "{{function_node __wrapped__MatMul}} OOM when allocating tensor with shape[65536,1024] and type float on "
    "/job:localhost/replica:0/task:0/device:CPU:0 by allocator bfc [Op:MatMul]"
)


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (RuntimeError(GPU), "out of GPU memory (CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity"),
        (RuntimeError(CPU), "out of memory ([enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you"),
        (RuntimeError(TENSORFLOW), "out of memory ({{function_node __wrapped__MatMul}} OOM when allocating tensor with shape[65536,1024]"),
        (MemoryError(), "out of memory; "),
        (OSError(12, "Cannot allocate memory"), "out of memory ([Errno 12] Cannot allocate memory); "),
        (RuntimeError("std::bad_alloc"), "out of memory (std::bad_alloc); "),
    ],
)
def test_exhausted_memory_is_one_line_without_a_traceback(problem, line, capsys):
    status, error = ending.describe_failure(problem, Position(2, 3, 9))
    assert (status, error.count("\n")) == (1, 0)
    assert error.startswith(f"in step 3/9 of epoch 2: {line}")
    assert error.endswith(f"; {machine.LESS_MEMORY}")
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.matrix
def test_a_run_out_of_memory_says_in_one_line_what_needs_less(tmp_path):
    # A limit of addresses, of which libraries take about 3 GiB.
    limited = f"ulimit -v {5 * 2**20}; exec {BIN / 'python'} -m frameworks.single --results {tmp_path} --machine here --run-id run"
    done = completed("bash", "-c", f"{limited} --workload transformer --layers 64 --batch-size 512 --epochs 1 --no-step-breakdown")
    record = json.loads((tmp_path / "here" / "run.json").read_text())
    assert (done.returncode, record["status"]) == (1, "failed"), done.stderr
    assert "before the first epoch: out of memory (" in record["error"]
    assert record["error"].endswith(f"; {machine.LESS_MEMORY}")
    assert "Traceback" not in done.stdout + done.stderr


def test_a_full_disk_is_one_line_without_a_traceback(capsys):
    status, error = ending.describe_failure(OSError(28, "No space left on device", "/results/run.json"), None)
    assert (status, error) == (1, "/results/run.json was not written: No space left on device")
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("problem", [RuntimeError("Connection closed by peer"), OSError(28, "No space left on device"), KeyError("memory")])
def test_another_error_is_not_of_memory(problem):
    assert ending.describe_exhausted(problem) is None


WAITING = """
import os
import time
from common.ranks import ending

ending.on_signal(lambda number: (print(number.name, flush=True), os._exit(3)))
print("ready", flush=True)
time.sleep(60)
"""


def test_a_signal_that_ends_a_process_is_heard_while_its_main_thread_waits():
    command = [BIN / "python", "-c", WAITING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ() | {"PYTHONPATH": str(ROOT)}) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGXCPU)
        assert process.stdout.readline() == "SIGXCPU\n"
    assert process.returncode == 3

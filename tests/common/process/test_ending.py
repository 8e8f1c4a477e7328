"""How a rank's process ends, so that its launcher takes a completed run for completed and a failed one for failed."""

import shutil
from pathlib import Path

import pytest

from launch.launchers.commands import Launcher, Start
from launch.run import failures
from tests.support import kills, slurm_cluster
from tests.support.running import BIN, completed

pytestmark = pytest.mark.matrix

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


@pytest.mark.parametrize(
    ("launcher", "executable", "num_ranks"),
    [*(("mpich", BIN / "mpiexec", num_ranks) for num_ranks in NUM_RANKS), ("torchrun", BIN / "torchrun", NUM_RANKS[0])],
)
def test_ranks_leave_far_apart(launcher, executable, num_ranks):
    expect_ends(launcher, executable, num_ranks, {})


@pytest.mark.skipif(not (OPEN_MPI[0] and OPEN_MPI[1].exists()), reason="Open MPI is not installed")
def test_ranks_leave_far_apart_under_open_mpi():
    expect_ends("openmpi", OPEN_MPI[0], NUM_RANKS[0], AS_ROOT)


@pytest.mark.long
def test_ranks_leave_far_apart_under_srun(tmp_path):
    if why_not := slurm_cluster.why_not():
        pytest.skip(why_not)
    with slurm_cluster.started(tmp_path) as cluster, kills.allocation(cluster, NUM_RANKS[0]) as variables:
        expect_ends("srun", shutil.which("srun"), NUM_RANKS[0], variables, num_nodes=2)

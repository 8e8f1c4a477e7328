"""However a program ends, a profile of what it did is left, which says how it ended."""

import signal
import subprocess

import pytest

from tests.support.kills import wait_until
from tests.support.running import BIN
from tests.support.tracing import TIME_LIMIT_SECONDS, Traced, compiled, run, run_python, variables

# Each starts a program, and many are quick only one by one.
pytestmark = pytest.mark.matrix

BEGIN = """
import os, signal, sys, time
import mpi4py
mpi4py.rc.finalize = False
{before}
from mpi4py import MPI
comm = MPI.COMM_WORLD
for _ in range(5):
    comm.Barrier()
"""
HANDLER = "signal.signal(signal.SIGTERM, lambda *_: (print('handled', flush=True), {then}))"
TERMINATE = "os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.1); "


@pytest.mark.parametrize(
    ("before", "end", "status", "printed", "ended"),
    [
        ("", "sys.exit(3)", 3, "", "exit()"),
        ("", "os._exit(4)", 4, "", "_exit()"),
        ("", TERMINATE, -signal.SIGTERM, "", "SIGTERM"),
        # A handler of the program, set before MPI begins and after, that goes on or ends by itself.
        (HANDLER.format(then="None"), TERMINATE, 0, "handled\n", "exit()"),
        ("", HANDLER.format(then="os._exit(5)") + ";" + TERMINATE, 5, "handled\n", "_exit()"),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", TERMINATE + "os._exit(7)", 7, "", "_exit()"),
    ],
)  # fmt: skip
def test_a_program_without_mpi_finalize_writes_its_profile(tmp_path, before, end, status, printed, ended):
    done = run_python(tmp_path, BEGIN.format(before=before) + end)
    assert (done.status, done.printed) == (status, printed)
    profile = done.only()
    assert profile.ended == ended
    assert profile.routines["MPI_Barrier"].num_calls == 5


IN_A_CHILD = """
if os.fork() == 0:
    {end}
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(
    "text",
    [
        IN_A_CHILD.format(end="sys.exit(1)"),
        IN_A_CHILD.format(end=TERMINATE),
        IN_A_CHILD.format(end="MPI.COMM_WORLD.Barrier(); os._exit(0)"),
        "import subprocess; subprocess.run(['bash', '-c', 'exit 3'])\n",
    ],
)
def test_a_child_leaves_the_profile_to_its_parent(tmp_path, text):
    rest = """
assert not os.path.exists(os.environ["TRACE_DIR"]), os.listdir(os.environ["TRACE_DIR"])
comm.Barrier()
MPI.Finalize()
"""
    done = run_python(tmp_path, BEGIN.format(before="") + text + rest)
    assert (done.status, done.printed) == (0, "")
    assert done.only().ended == "MPI_Finalize()"
    assert done.only().routines["MPI_Barrier"].num_calls == 6


OTHER_MPI = """
#include <mpi.h>
int ompi_mpi_comm_world;
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    return 0;
}
"""


def test_a_program_of_another_mpi_is_refused(tmp_path):
    done = run(tmp_path, compiled(tmp_path, OTHER_MPI, "-rdynamic"))
    assert (done.status, done.printed.count("\n"), done.folder.exists()) == (127, 1, False)
    assert "the interposer is built for MPICH, but the program runs with" in done.printed


def test_mpi_abort_writes_the_profile_of_its_rank(tmp_path):
    done = run_python(tmp_path, BEGIN.format(before="") + "\nif comm.rank == 1: comm.Abort(9)\ntime.sleep(20)", ranks=2)
    assert done.status == 9
    assert done.profiles()[1].ended == "MPI_Abort()"


def test_a_terminated_launcher_leaves_a_profile_of_each_rank(tmp_path):
    text = BEGIN.format(before="") + 'comm.rank or print("ready", flush=True); time.sleep(30)'
    command = [BIN / "mpiexec", "-n", "2", BIN / "python", "-c", text]
    launcher = subprocess.Popen(command, env=variables(tmp_path / "profiles"), stdout=subprocess.PIPE, text=True)
    assert launcher.stdout.readline() == "ready\n"
    launcher.terminate()
    launcher.wait(timeout=TIME_LIMIT_SECONDS)
    # Hydra does not wait for its ranks.
    wait_until(lambda: len(list((tmp_path / "profiles").glob("mpi_profile.*.[01]"))) == 2, TIME_LIMIT_SECONDS)
    profiles = Traced(launcher.returncode, "", tmp_path / "profiles").profiles()
    assert {rank: profile.ended for rank, profile in profiles.items()} == {0: "SIGTERM", 1: "SIGTERM"}

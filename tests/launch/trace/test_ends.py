"""However a program ends, a profile of what it did is left, with the reason why there is none of all ranks."""

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
        ("", "MPI.Finalize(); os._exit(4)", 4, "", "MPI_Finalize()"),
        ("", TERMINATE, -signal.SIGTERM, "", "SIGTERM"),
        # A handler of the program, set before MPI begins and after, that goes on, ends by itself or gives up.
        (HANDLER.format(then="None"), TERMINATE, 0, "handled\n", "exit()"),
        (HANDLER.format(then="None"), TERMINATE + "os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, "handled\n", "SIGTERM"),
        ("import faulthandler; faulthandler.enable(); " + HANDLER.format(then="None"), TERMINATE, 0, "handled\n", "exit()"),
        ("", HANDLER.format(then="os._exit(5)") + ";" + TERMINATE, 5, "handled\n", "_exit()"),
        ("", HANDLER.format(then="sys.exit(6)") + ";" + TERMINATE, 6, "handled\n", "exit()"),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", TERMINATE + "os._exit(7)", 7, "", "_exit()"),
    ],
)  # fmt: skip
def test_a_program_without_mpi_finalize_writes_its_own_profile(tmp_path, before, end, status, printed, ended):
    done = run_python(tmp_path, BEGIN.format(before=before) + end)
    assert (done.status, done.printed) == (status, printed)
    profile = done.only()
    assert profile.ended == ended
    assert profile.routines["MPI_Barrier"].sums.num_calls == 5
    because = None if ended == "MPI_Finalize()" else f"this rank ended by {ended} and not by MPI_Finalize()"
    assert profile.no_summary_because == because
    text = done.profiles(suffix="")[0]
    assert (text.ended, text.no_summary_because) == (ended, because)


IN_A_CHILD = """
if os.fork() == 0:
    {end}
    os._exit(0)
os.wait()
"""
WITHOUT_A_PROGRAM = """
import contextlib, subprocess
with contextlib.suppress(FileNotFoundError):
    subprocess.run(["/there/is/none"])
"""


@pytest.mark.parametrize(
    "text",
    [
        IN_A_CHILD.format(end="os._exit(1)"),
        IN_A_CHILD.format(end="sys.exit(1)"),
        IN_A_CHILD.format(end=TERMINATE),
        IN_A_CHILD.format(end="MPI.COMM_WORLD.Barrier(); os._exit(0)"),
        "import subprocess; subprocess.run(['bash', '-c', 'exit 3'])\n",
        WITHOUT_A_PROGRAM,
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
    assert done.only().routines["MPI_Barrier"].sums.num_calls == 6


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


HANDLED_IN_C = r"""
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static void handle(int number, siginfo_t *info, void *context)
{
    (void)context;
    printf("signal %d from this process: %d\n", number, info->si_pid == getpid());
    fflush(stdout);
}
int main(int argc, char **argv)
{
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    raise(SIGTERM);
    raise(SIGTERM);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"""


def test_a_handler_in_c_is_called_with_what_it_asked_for(tmp_path):
    done = run(tmp_path, compiled(tmp_path, HANDLED_IN_C))
    assert (done.status, done.printed) == (0, "signal 15 from this process: 1\n" * 2)
    assert (done.only().ended, done.only().routines["MPI_Barrier"].sums.num_calls) == ("MPI_Finalize()", 2)


def test_the_profile_of_a_survived_signal_is_removed(tmp_path):
    text = (
        BEGIN.format(before=HANDLER.format(then="None"))
        + f"""
if comm.rank == 1:
    {TERMINATE}
    print(len(os.listdir(os.environ["TRACE_DIR"])))
comm.Barrier()
MPI.Finalize()
"""
    )
    done = run_python(tmp_path, text, ranks=2, SAVE_ALL_TASKS="", SAVE_LIST="0")
    assert (done.status, done.printed) == (0, "handled\n2\n")
    assert list(done.profiles()) == list(done.profiles(suffix="")) == [0]


FAILING = """
comm.Set_errhandler(MPI.ERRORS_RETURN)
try:
    comm.Send([None, 0, MPI.BYTE], dest=99)
except MPI.Exception:
    print("failed", flush=True)
MPI.Finalize()
"""


def test_a_failed_rank_blocks_no_other(tmp_path):
    text = BEGIN.format(before="") + FAILING.replace("99", "99 if comm.rank else 0")
    done = run_python(tmp_path, text, ranks=2, TANDEM_TRACE_WAIT_SECONDS=1)
    # MPICH may complain of pending references.
    assert (done.status, done.printed.splitlines()[0]) == (0, "failed")
    assert {rank: (profile.ended, profile.no_summary_because) for rank, profile in done.profiles().items()} == {
        0: ("MPI_Finalize()", "not all ranks called MPI_Finalize() within 1 s"),
        1: ("MPI_Finalize()", "MPI_Send_c failed on this rank, and other ranks may hang after a failure"),
    }


def test_an_error_of_mpi_io_is_not_a_communication_failure(tmp_path):
    text = """
if comm.rank:
    try:
        MPI.File.Delete("/there/is/none")
    except MPI.Exception:
        print("failed", flush=True)
MPI.Finalize()
"""
    done = run_python(tmp_path, BEGIN.format(before="") + text, ranks=2, TANDEM_TRACE_WAIT_SECONDS=1)
    assert (done.status, done.printed) == (0, "failed\n")
    profiles = done.profiles()
    for profile in profiles.values():
        assert (profile.no_summary_because, profile.routines["MPI_Barrier"].sums.num_calls) == (None, 5)
    assert len(profiles[0].tasks) == 2


def test_mpi_abort_writes_the_profile_of_its_rank(tmp_path):
    done = run_python(tmp_path, BEGIN.format(before="") + "\nif comm.rank == 1: comm.Abort(9)\ntime.sleep(20)", ranks=2)
    assert done.status == 9
    assert done.profiles()[1].ended == "MPI_Abort()"


# Before MPI begins, so that its threads are late too.
BLOCK = "os.environ['PMI_RANK'] == '0' or signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])"
LATE = """
comm.rank or print("ready", flush=True)
if comm.rank:
    while signal.SIGTERM not in signal.sigpending():
        time.sleep(0.01)
    time.sleep(0.3)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
time.sleep(30)
"""


def test_a_terminated_launcher_leaves_a_profile_of_each_rank(tmp_path):
    """The last rank writes its own when the first has long written, and MPICH's mpiexec kills it as soon as that one ends."""
    text = BEGIN.format(before=BLOCK) + LATE
    command = [BIN / "mpiexec", "-n", "2", BIN / "python", "-c", text]
    launcher = subprocess.Popen(command, env=variables(tmp_path / "profiles"), stdout=subprocess.PIPE, text=True)
    assert launcher.stdout.readline() == "ready\n"
    launcher.terminate()
    launcher.wait(timeout=TIME_LIMIT_SECONDS)
    # Hydra does not wait for its ranks.
    wait_until(lambda: len(list((tmp_path / "profiles").glob("*.json"))) == 2, TIME_LIMIT_SECONDS)
    profiles = Traced(launcher.returncode, "", tmp_path / "profiles").profiles()
    assert {rank: profile.ended for rank, profile in profiles.items()} == {0: "SIGTERM", 1: "SIGTERM"}

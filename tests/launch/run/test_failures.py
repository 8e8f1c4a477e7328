"""The killed rank from the messages of each launcher."""

import pytest

from common.progress import Progress
from common.ranks import machine
from common.ranks.machine import LESS_MEMORY
from launch.run import failures
from launch.run.failures import Killed, describe_exit, describe_killed, is_cause, killed_rank, reported

HYDRA = """===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 32422 RUNNING AT vm
=   EXIT CODE: {code}
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
"""
HYDRA_KILLED = HYDRA.format(code=9) + "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n"
PRRTE = "prterun noticed that process rank 2 with PID 1617 on node x1 exited on\nsignal 4 (Illegal instruction).\n"
OPEN_MPI = "mpiexec noticed that process rank 3 with PID 1234 on node x1 exited on signal 9 (Killed).\n"
SLURM = "srun: error: n2: task 1: Killed\nsrun: launch/slurm: _step_signal: Terminating StepId=3.0\n"
SLURM_SEVERAL = """srun: error: n1: tasks 1-2: Terminated
srun: error: n1: tasks 0,3: Segmentation fault
srun: error: n2: tasks 4-7: Terminated
"""
TORCHRUN = """Failures:
[1]:
  time      : 2026-11-21_15:28:12
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 32392)  (SIGKILL)
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 32391)
"""
PASSED_ON = "  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: 32391)  (SIGTERM)\n"


@pytest.mark.parametrize(
    ("text", "killed"),
    [
        (HYDRA_KILLED, Killed(1, 9, HYDRA_KILLED.splitlines()[-1])),
        (HYDRA_KILLED.replace("32422", "17"), Killed(None, 9, HYDRA_KILLED.splitlines()[-1])),
        (HYDRA.format(code=1), None),
        (OPEN_MPI, Killed(3, 9, OPEN_MPI.strip())),
        (PRRTE, Killed(2, 4, "signal 4 (Illegal instruction).")),
        (SLURM, Killed(1, 9, "srun: error: n2: task 1: Killed")),
        (SLURM_SEVERAL, Killed(0, 11, SLURM_SEVERAL.splitlines()[1])),
        (TORCHRUN, Killed(1, 9, "exitcode  : -9 (pid: 32392)  (SIGKILL)")),
        (PASSED_ON + TORCHRUN, Killed(1, 9, "exitcode  : -9 (pid: 32392)  (SIGKILL)")),
        (PASSED_ON, None),
        ("error: rank 0: RuntimeError: Connection closed by peer\n", None),
    ],
)
def test_the_rank_that_was_killed_is_named(text, killed):
    assert killed_rank(text.splitlines(), [32421, 32422]) == killed


def test_of_more_than_three_ranks_hydra_does_not_tell_which_was_killed_first():
    assert [killed_rank(HYDRA_KILLED.splitlines(), range(32420, end)).rank for end in (32423, 32424)] == [2, None]


PROGRESS = Progress(2, 5, 7, 22, 0.5, None, 3.0)
PRINTED = "and the launcher printed: it was killed"


@pytest.mark.parametrize(
    ("killed", "progress", "num_oom_kills", "line"),
    [
        (
            Killed(1, 9, "it was killed"), PROGRESS, 0,
            f"rank 1 was killed by SIGKILL after step 7 of epoch 2; the kernel killed no process of this node for memory, {PRINTED}",
        ),
        (
            Killed(1, 9, "it was killed"), None, None,
            f"rank 1 was killed by SIGKILL; whether memory ran out is not known, {PRINTED}",
        ),
        (
            Killed(0, 9, "it was killed"), None, 1,
            f"rank 0 was killed by SIGKILL, out of memory: the kernel's OOM killer ended a process of this node meanwhile; {LESS_MEMORY}",
        ),
        (Killed(None, 11, "it crashed"), None, 0, "a rank was killed by SIGSEGV"),
    ],
)  # fmt: skip
def test_a_killed_rank_is_described_in_one_line(killed, progress, num_oom_kills, line):
    assert describe_killed(killed, progress, num_oom_kills) == line


@pytest.mark.parametrize(
    ("number", "progress", "total", "says_room"),
    [(7, PROGRESS, 10**9, True), (11, None, 64e6, True), (11, None, 10**9, False), (11, PROGRESS, 64e6, False)],
)
def test_a_crash_for_want_of_shared_memory_says_what_there_is(number, progress, total, says_room, monkeypatch):
    monkeypatch.setattr(machine, "shared_memory", lambda: machine.SharedMemory(10**6, total))
    line = describe_killed(Killed(None, number, "it crashed"), progress, 0, 16)
    room = f"as where shared memory is full; /dev/shm has 1 of {total / 1e6:.0f} MB free, and with MPICH 16 ranks take 86; make it larger"
    assert (room in line) == says_room, line


@pytest.mark.parametrize(("line", "is_lost"), [("control_cb (pmiserv_cb.c:280): assert (!closed) failed", True), ("failed", False)])
def test_a_lost_proxy_of_hydra_is_named(line, is_lost):
    description = describe_exit(255, [f"[mpiexec@n1] {line}", "more"])
    assert description.startswith(
        "ended with exit status 255, since its hydra" if is_lost else "ended with exit status 255; the last line: more"
    )


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["ssh: connect to host n2 port 22: Connection refused"], 0),
        (["ssh: Could not resolve hostname n2: Name or service not known"], 0),
        (["No ED25519 host key is known for n2 and you have requested strict checking.", "Host key verification failed."], 0),
        (["@@@@@@", "Host key for n2 has changed and you have requested strict checking.", "Host key verification failed."], 1),
        # Where nobody is there to answer.
        (["Host key verification failed."], 0),
        (["root@n2: Permission denied (publickey,password)."], 0),
        (["Connection closed by 10.0.0.2 port 22"], 0),
        (["[mpiexec@n1] main: process manager error waiting for completion"], None),
    ],
)
def test_a_node_that_is_not_reached_is_named_in_the_words_of_ssh(lines, line):
    error = reported(["a banner", *lines])
    assert error == (None if line is None else f"a node is not reached: {lines[line]}; {failures.REACH}")
    assert any(map(is_cause, lines)) == (line is not None)

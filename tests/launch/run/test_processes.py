"""A run's processes: when it is over, and that nothing of it is left, also where its matrix is killed."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from common.progress import Progress
from common.ranks.meeting import MASTER
from common.ranks.messages import VARIABLE, Hang, Position, RankEnded, TurnEnded, format_line
from launch.run import processes, supervisor, turns
from tests.support import kills
from tests.support.running import ROOT

SECRET = "5ec2e1"
HANG = Hang(0, Position(1, 20, 22), 9.0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.3)


def run(script, tmp_path, time_limit_seconds):
    """Returns (Outcome, messages) of a shell script."""
    messages = []
    return turns.alone(
        processes.run(["sh", "-c", script], {VARIABLE: SECRET}, str(tmp_path), tmp_path, time_limit_seconds, messages.append)
    ), messages


def test_the_temporary_folder_of_a_run_goes_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    outcome, _ = run('[ "${TMPDIR%/*}" = "$PWD" ] && mktemp && mkdir "$TMPDIR/folder"', tmp_path, 60)
    assert (outcome.returncode, list(tmp_path.iterdir())) == (0, [])


def test_a_run_that_hangs_is_ended_though_its_launcher_waits(tmp_path):
    begun = time.monotonic()
    outcome, messages = run(f"trap '' TERM; echo '{format_line(HANG, SECRET)}'; while :; do sleep 0.1; done", tmp_path, 60)
    assert time.monotonic() - begun < 30
    assert not outcome.timed_out
    assert outcome.returncode != 0
    assert messages == [HANG]
    assert supervisor.processes_of(str(tmp_path)) == []


@pytest.mark.parametrize("error", [None, "rank 1: no data"])
def test_a_run_whose_output_is_held_when_its_ranks_have_left_is_ended(error, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "LEAVING_SECONDS", 0.3)
    outcome, messages = run(f"echo '{format_line(RankEnded(error), SECRET)}'; sleep 60", tmp_path, 40)
    problem = "the launcher had not ended 0 s after the run had completed, as where a process that a rank has started holds its output"
    assert (outcome.timed_out, outcome.problem, messages) == (False, None if error else problem, [RankEnded(error)])
    assert supervisor.processes_of(str(tmp_path)) == []


@pytest.mark.parametrize("printed", ["", f"'{format_line(TurnEnded([7]), SECRET)}' | sed s/7/$!/"])
def test_a_run_beyond_its_time_limit_is_timed_out_and_ended_also_where_a_rank_that_says_so_has_not_stopped(printed, tmp_path):
    outcome, messages = run(f"sleep 60 & echo {printed}; wait", tmp_path, 0.5)
    assert outcome.timed_out
    assert messages == []
    assert supervisor.processes_of(str(tmp_path)) == []


@pytest.mark.parametrize("secret", ["another", SECRET])
def test_a_printed_message_stops_no_process_outside_the_run_and_is_none_without_the_secret(secret, tmp_path):
    process = subprocess.Popen(["sleep", "60"])
    try:
        process.send_signal(signal.SIGSTOP)
        kills.wait_until(lambda: not supervisor.is_running(process.pid))
        outcome, messages = run(f"echo '{format_line(TurnEnded([process.pid]), secret)}'; sleep 0.3", tmp_path, 60)
        assert (outcome.returncode, outcome.problem, messages) == (0, None, [])
        assert not supervisor.is_running(process.pid)
    finally:
        process.kill()
        process.wait()


def test_of_a_line_without_end_only_its_beginning_is_kept_and_a_message_behind_it_is_read(tmp_path):
    send = "from common.ranks import messages as m; m.os.environ.clear(); m.send(m.RankEnded('cause'))"
    script = f"head -c 10000000 /dev/zero | tr '\\0' x; PYTHONPATH={ROOT} {sys.executable} -c \"{send}\"; echo; echo last"
    outcome, messages = run(script, tmp_path, 60)
    assert (outcome.last_lines, messages) == (["x" * processes.MAX_LINE_BYTES, "last"], [RankEnded("cause")])


def test_a_run_does_not_meet_at_the_port_of_the_job_script_but_at_one_of_its_own(tmp_path, monkeypatch):
    for name in MASTER:
        monkeypatch.setenv(name, "6000")
    outcome, _ = run("echo ${MASTER_ADDR-none} ${MASTER_PORT-none}", tmp_path, 60)
    assert outcome.last_lines == ["none none"]


def test_banners_do_not_push_the_cause_of_a_failure_out_of_the_kept_lines(tmp_path):
    banners = (
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        "I0000 00:00:1795475672.228781    8760 port.cc:153] oneDNN custom operations are on. You may see slightly different results.",
        "To enable the following instructions: AVX2 AVX512F, in other operations, rebuild TensorFlow.",
        "WARNING:tensorflow:Callback method `on_train_batch_end` is slow compared to the batch time (batch time: 0.1s).",
    )
    (tmp_path / "banners").write_text("\n".join(banners * processes.NUM_LAST_LINES) + "\n")
    outcome, _ = run("echo cause; cat banners; exit 3", tmp_path, 60)
    assert outcome == processes.Outcome(3, False, ["cause"])


# A run of two ranks that stop themselves twice, and go on together.
IN_TURNS = """
import os, signal, socket
from common.ranks.messages import TurnEnded, format_line
sockets = socket.socketpair()
child = os.fork()
connection, pids = (sockets[0], [os.getpid(), child]) if child else (sockets[1], None)
sockets[1 if child else 0].close()
for _ in range(2):
    if pids:
        print(format_line(TurnEnded(pids), os.environ["TANDEM_MESSAGES"]), flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    connection.send(b"!")
    assert connection.recv(1) == b"!"
os.write(1, b"over\\n")
if pids:
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def begin(tmp_path, time_limit_seconds):
    return processes.run(
        [sys.executable, "-c", IN_TURNS], {"PYTHONPATH": str(ROOT), VARIABLE: SECRET}, str(tmp_path), tmp_path, time_limit_seconds, print
    )


@pytest.mark.matrix
def test_a_run_is_stopped_between_its_turns_which_do_not_count(tmp_path):
    run = begin(tmp_path, 3)
    for seconds in (4, 0):
        assert [psutil.Process(pid).status() for pid in next(run)] == [psutil.STATUS_STOPPED] * 2
        time.sleep(seconds)
    with pytest.raises(StopIteration) as end:
        next(run)
    assert end.value.value == processes.Outcome(0, False, ["over", "over"])


def test_a_run_that_is_closed_between_its_turns_leaves_no_process(tmp_path):
    run = begin(tmp_path, 60)
    pids = next(run)
    run.close()
    assert supervisor.processes_of(str(tmp_path)) == []
    assert not any(map(supervisor.is_running, pids))


def test_a_rank_that_is_killed_between_its_turns_ends_the_run(tmp_path):
    run = begin(tmp_path, 60)
    os.kill(next(run)[1], signal.SIGKILL)
    outcome = turns.alone(run)
    assert (outcome.returncode, outcome.timed_out) == (1, False)


# A run that leaves a process in a session of its own, whose parent has ended.
DAEMON = "(setsid sh -c 'trap : TERM HUP; while :; do sleep 0.1; done' &); sleep 1; exit 3"


def test_a_daemon_of_a_run_ends_with_it_also_where_the_supervisor_is_killed_which_the_run_survives(tmp_path):
    def supervisors():
        return [child for child in psutil.Process().children() if {str(tmp_path), supervisor.__file__} <= {*child.cmdline()}]

    def kill():
        kills.wait_until(supervisors)
        killed.extend(supervisors())
        killed[0].kill()

    killed = []
    threading.Thread(target=kill).start()
    outcome, _ = run(DAEMON, tmp_path, 60)
    assert (outcome.returncode, outcome.problem, len(killed)) == (3, None, 1)
    assert supervisor.processes_of(str(tmp_path)) == []


# A run whose process ignores SIGTERM, in a session of its own, and keeps printing; where it cannot, it makes a file.
SCRIPT = """
import signal, sys
from launch.run import processes, turns
# Whoever runs the tests in the background has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
processes.GRACE_SECONDS = 0.5
loop = "trap '' TERM PIPE; while :; do echo line || touch $0/broken; sleep 0.05; done"
command = ["setsid", "--wait", "sh", "-c", loop, sys.argv[1]]
turns.alone(processes.run(command, {}, sys.argv[1], ".", 60, print))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_ends_with_the_process_that_started_it(number, tmp_path):
    mark = str(tmp_path)
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, mark], cwd=ROOT, stderr=subprocess.DEVNULL)
    kills.wait_until(lambda: len(supervisor.processes_of(mark)) > 1)
    process.send_signal(number)
    process.wait(timeout=20)
    kills.wait_until(lambda: not supervisor.processes_of(mark))
    # A rank that cannot print any more would fail of that, and record it.
    assert not (tmp_path / "broken").exists()


# It says what the outcome of a run of three seconds is.
SUSPENDED = """
import sys
from launch.run import processes, turns
processes.SUSPENDED_SECONDS = 1.0
print("begun", flush=True)
print(turns.alone(processes.run(["sleep", "3"], {}, sys.argv[1], ".", 60, print)).problem)
"""


def test_a_run_whose_job_was_suspended_has_failed(tmp_path):
    command = [sys.executable, "-c", SUSPENDED, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        kills.wait_until(lambda: len(supervisor.processes_of(str(tmp_path))) > 0)
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        process.send_signal(signal.SIGCONT)
        assert re.fullmatch(r"suspended for \d s, which its clock cannot tell from training\n", process.stdout.read())


# A launcher that waits for ranks which stop, and prints no line about a turn.
ALL_STOP = "for rank in 1 2; do sh -c 'kill -STOP $$' & done; wait"
PROGRESS = Progress(1, 1, 1, 2, 0.5, None, 3.0)
# A launcher that has started a process for each of two nodes, one of which is killed when training has begun, after both have their names.
HELPER_ENDS = f"sleep 60 & sleep 50 & sleep 0.4; echo '{format_line(PROGRESS, SECRET)}'; sleep 0.4; kill -9 $!; wait"


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (ALL_STOP, "all ranks were stopped for 0 s by a process outside the run"),
        ("kill -STOP $$", r"the launcher \(pid \d+\) was stopped for 0 s by a process outside the run"),
        (HELPER_ENDS, r"sleep \(pid \d+\).*, which starts ranks and passes their output on, has ended"),
        ("kill -9 $$", r"the launcher sh \(pid \d+\) was killed by SIGKILL"),
        ("kill -SEGV $$", r"the launcher sh \(pid \d+\) was killed by SIGSEGV"),
        # One rank that goes on has a watchdog.
        (f"sh -c 'sleep 1; exit' & {ALL_STOP} & wait $!; exit 3", None),
        ("exit 137", None),
    ],
)
def test_what_no_process_of_a_run_can_report_is_its_problem(script, problem, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "STOPPED_SECONDS", 0.3)
    monkeypatch.setattr(processes, "LOOK_SECONDS", 0.1)
    outcome, _ = run(script, tmp_path, 20 if problem else 3)
    assert re.fullmatch(problem or "None", str(outcome.problem))
    assert supervisor.processes_of(str(tmp_path)) == []


def test_what_libraries_have_shared_since_a_run_began_goes_with_it_where_nobody_uses_it_also_where_the_process_was_never_seen(
    tmp_path, monkeypatch
):
    # A run that ends meanwhile in another test would remove the older file from /dev/shm.
    monkeypatch.setattr(supervisor, "SHARED_MEMORY", tmp_path)
    # In the order of the letters: opened and mapped by another run, mapped alone, left by a killed process, another file, and an older one.
    paths = [tmp_path / name for name in ("mpich_shm_a", "mpich_shm_b", "mpich_shm_c", "mine", "mpich_shm_d")]
    paths[-1].write_bytes(b"x")
    time.sleep(0.05)
    begun = time.time()
    # The clock of files is a few milliseconds behind.
    time.sleep(0.05)
    for path in paths[:-1]:
        path.write_bytes(b"x")
    use = "import mmap, os, sys, time; file = open(sys.argv[1]); maps = mmap.mmap(os.open(sys.argv[2], os.O_RDWR), 1); time.sleep(60)"
    with kills.marked(f"{tmp_path}/other", sys.executable, "-c", use, *map(str, paths[:2])) as process:
        kills.wait_until(lambda: paths[1].name in Path(f"/proc/{process.pid}/maps").read_text())
        supervisor.end(str(tmp_path), 0.5, begun)
        assert [path.exists() for path in paths] == [True, True, False, True, True]
    supervisor.end(str(tmp_path), 0.5, begun)
    assert [path.exists() for path in paths] == [False, False, False, True, True]


def test_shared_memory_of_another_user_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    path = tmp_path / "mpich_shm_a"
    path.touch()
    supervisor.remove_shared_memory(since=0.0)
    assert path.exists()


def test_a_run_of_another_matrix_is_left_alone(tmp_path):
    with kills.marked(f"{tmp_path}/other", "sleep", "60") as process:
        supervisor.end(str(tmp_path), 0.5, time.time())
        assert supervisor.processes_of(f"{tmp_path}/other") == [process.pid]
        assert process.poll() is None


def test_a_process_of_any_name_is_found(tmp_path):
    script = "import time; open('/proc/self/comm', 'wb').write(b'\\xff) R'); time.sleep(60)"
    with kills.marked(str(tmp_path), sys.executable, "-c", script) as process:
        kills.wait_until(lambda: b"\xff" in Path(f"/proc/{process.pid}/comm").read_bytes())
        assert supervisor.processes_of(str(tmp_path)) == [process.pid]
        assert supervisor.is_running(process.pid)

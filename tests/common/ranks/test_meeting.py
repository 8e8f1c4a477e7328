"""How ranks meet: each learns of one that failed before, none waits for ever, and none listens to other machines without need."""

import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from common.ranks import meeting, mpi, slurm
from common.ranks.launcher_variables import Ranks
from common.training import program
from frameworks.shared.horovod import horovod
from tests.support.mistakes import refused
from tests.support.running import BIN, completed, environ
from tests.support.small_data import write_digits

ONE_EPOCH = ("--epochs", "1", "--no-step-breakdown", "--machine", "here", "--run-id", "run")


def two_ranks(how, variables=None):
    """Returns (exit status, lines printed, seconds) of two ranks of tests.support.meeting_run."""
    begun = time.perf_counter()
    # Unbuffered, the end of a line is written apart, and lines of two ranks may mix.
    variables = {"PYTHONUNBUFFERED": ""} | (variables or {})
    done = completed(BIN / "mpiexec", "-n", 2, BIN / "python", "-m", "tests.support.meeting_run", how, variables=variables, seconds=50)
    return done.returncode, (done.stdout + done.stderr).splitlines(), time.perf_counter() - begun


@pytest.mark.matrix
@pytest.mark.parametrize("how", ["fails", "slow"])
def test_a_rank_that_fails_before_it_meets_the_others_tells_them_why_and_says_so_before_slow_ones_come(how):
    status, lines, _ = two_ranks(how)
    failure = f"rank 1 on {socket.gethostname()}: no data"
    expected = ["rank 1 records no data", f"error: {failure}", f"rank 0 records {failure}"]
    # Otherwise in any order, and without a word of the launcher.
    assert (status, lines if how == "slow" else sorted(lines)) == (2, expected if how == "slow" else sorted(expected))


@pytest.mark.matrix
def test_a_rank_does_not_wait_longer_for_the_others_than_it_is_told():
    status, lines, seconds = two_ranks("late")
    assert status
    assert "error: rank 0: not all ranks have joined over MPI after 1 s (--join-timeout)" in lines
    assert seconds < 30


@pytest.mark.matrix
def test_the_record_under_torchrun_has_the_line_of_the_worker_that_failed(tmp_path):
    write_digits(tmp_path / "data", 50)
    program = (BIN / "python", "-m", "frameworks.ddp", *ONE_EPOCH, "--results", tmp_path, "--dataset", "mnist", "--batch-size", "1")
    of_rank = f'{shlex.join(map(str, program))} --data-dir {tmp_path}/$([ "$RANK" = 0 ] && echo data || echo absent)'
    done = completed(BIN / "torchrun", "--standalone", "--nproc-per-node=2", "--no-python", "sh", "-c", f"exec {of_rank}")
    record = json.loads((tmp_path / "here" / "run.json").read_text())
    assert (done.returncode, record["status"]) == (1, "failed")
    assert record["error"].startswith(f"rank 1 on {socket.gethostname()}: --data-dir {tmp_path}/absent is not a folder")


@pytest.mark.matrix
def test_the_others_learn_of_a_rank_whose_library_cannot_be_imported(tmp_path):
    (tmp_path / "torch.py").write_text('raise ImportError("libcuda.so: cannot open shared object file")\n')
    program = (BIN / "python", "-m", "frameworks.ddp", *ONE_EPOCH, "--results", tmp_path)
    done = completed(BIN / "mpiexec", "-n", 1, *program, ":", "-n", 1, "-env", "PYTHONPATH", tmp_path, *program)
    record = json.loads((tmp_path / "here" / "run.json").read_text())
    assert (done.returncode, record["status"]) == (1, "failed")
    assert record["error"] == f"rank 1 on {socket.gethostname()}: ImportError: libcuda.so: cannot open shared object file"


ALONE_IN_A_GROUP = """
import torch
import psutil
from common.config import Settings
from common.ranks.launcher_variables import Ranks
from frameworks.shared.pytorch import process_group

process_group.begin(Settings(), Ranks(), torch.device("cpu"))
print(torch.distributed.get_debug_level().name)
print(*{connection.laddr.ip for connection in psutil.Process().net_connections() if connection.status == "LISTEN"})
"""


def test_on_one_node_pytorch_listens_at_the_loopback_alone_and_not_at_the_level_at_which_ddp_crashes():
    done = completed(BIN / "python", "-c", ALONE_IN_A_GROUP, variables={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    assert done.stdout.splitlines() == ["INFO", "127.0.0.1"], done.stderr
    assert done.stderr.startswith("TORCH_DISTRIBUTED_DEBUG=DETAIL is taken as INFO")


@pytest.mark.parametrize(("rank", "missing"), [(0, 1), (1, 0)])
@pytest.mark.matrix
def test_a_rank_of_pytorch_names_the_one_that_did_not_come_and_where(rank, missing, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    variables = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    program = (BIN / "python", "-m", "frameworks.ddp", *ONE_EPOCH, "--results", tmp_path, "--join-timeout", 2)
    done = completed(*program, variables=variables)
    error = f"rank {rank}: not all ranks have joined at 127.0.0.1:{port}, where rank {missing} did not come, after 2 s (--join-timeout)"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, f"error: {error}")
    if rank == 0:
        assert json.loads((tmp_path / "here" / "run.json").read_text())["error"] == error


WAITING = """
import os
import time
from common.ranks import ending

ending.on_signal(lambda number: (print(number.name, flush=True), os._exit(3)))
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGXCPU])
def test_a_signal_that_ends_a_process_is_heard_while_its_main_thread_waits(number):
    # Whoever runs the tests may ignore some.
    command = ["env", f"--default-signal={number.name.removeprefix('SIG')}", BIN / "python", "-c", WAITING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ() | {"PYTHONPATH": os.getcwd()}) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == f"{number.name}\n"
    assert process.returncode == 3


@pytest.mark.matrix
def test_a_run_that_a_batch_system_ends_by_a_signal_has_failed(tmp_path):
    command = [BIN / "python", "-m", "frameworks.single", "--results", tmp_path, "--machine", "here", "--run-id", "run", "--epochs", "100"]
    path = tmp_path / "here" / "run.json"
    with subprocess.Popen([str(word) for word in command], env=environ(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.05)
        # The record is there a moment before the thread that hears of signals.
        while len(psutil.Process(process.pid).threads()) < 2:
            time.sleep(0.05)
        process.send_signal(signal.SIGUSR1)
        printed = process.stderr.read().decode()
    record = json.loads(path.read_text())
    assert (process.returncode, record["status"]) == (128 + signal.SIGUSR1, "failed")
    assert record["error"] == "ended by SIGUSR1 (User defined signal 1)"
    assert printed.splitlines()[-1] == "error: rank 0: ended by SIGUSR1"


def test_horovod_over_gloo_is_refused_where_its_host_has_no_address_and_its_server_listens_at_one(monkeypatch):
    port = horovod.serve_rendezvous([], "127.0.0.1")
    listening = {connection.laddr for connection in psutil.Process().net_connections() if connection.status == "LISTEN"}
    assert ("127.0.0.1", port) in listening
    for name in ("no-such-host.invalid", "a" * 300):
        monkeypatch.setattr(socket, "gethostname", lambda name=name: name)
        with refused(f"looks up the name of its host, and {name} has no address; add it to /etc/hosts"):
            horovod.begin_over_gloo(Ranks(0, 2, 0, 2, "MPICH/Intel PMI"))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        "null",
        '{"launched_at": "now"}',
        '{"other": 1}',
        '{"settings": {"epochs": 1}}',
        "[" * 100_000,
        '{"settings": {"trace": 5}}',
        '{"ignored_variables": {"OMP_PLACES": 5}}',
    ],
)
def test_a_launch_that_no_matrix_told_is_refused(text, monkeypatch):
    monkeypatch.setenv("TANDEM_LAUNCH", text)
    with refused("TANDEM_LAUNCH is ", "unset it"):
        program.launch_by_matrix()
    monkeypatch.setenv("TANDEM_LAUNCH", "")
    assert program.launch_by_matrix() == {}


@pytest.mark.parametrize(
    ("preloaded", "by_matrix", "settings"),
    [
        ("", "", {}),
        ("libother.so", "", {}),
        ("/a/libtandemtrace.so", "", {"trace": "mpi"}),
        ("libother.so:/site/mpitrace/lib/libmpitrace.so.1 libc.so", "", {"trace": "mpi"}),
        ("/site/mpitrace/lib/libother.so", "", {}),
        ("/a/libtandemtrace.so", '{"settings": {"trace": "mpi"}}', {"trace": "mpi"}),
        # A whole matrix that is traced compares its runs.
        ("/a/libtandemtrace.so", '{"settings": {"trace": null}}', {"trace": None}),
    ],
)
def test_a_run_has_the_settings_of_its_matrix_and_alone_is_traced_where_a_preloaded_library_traces(
    preloaded, by_matrix, settings, monkeypatch
):
    monkeypatch.setenv("LD_PRELOAD", preloaded)
    monkeypatch.setenv("TANDEM_LAUNCH", by_matrix)
    assert program.launch_of("ddp", Ranks()).settings == settings


@pytest.fixture(autouse=True)
def _no_master(monkeypatch):
    for name in (*meeting.MASTER, "GLOO_SOCKET_IFNAME", "SLURM_MPI_TYPE", "SLURM_STEP_ID"):
        # setenv makes monkeypatch remove variables that the code under test sets.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.parametrize("interface", [None, "ib0"])
def test_a_single_rank_uses_the_loopback_unless_the_user_chose_an_interface_and_a_free_port(interface, monkeypatch):
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, "ib0")])
    if interface:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", interface)
    meeting.agree_on_master(Ranks())
    assert os.environ["MASTER_ADDR"] == "127.0.0.1"
    assert os.environ["GLOO_SOCKET_IFNAME"] == (interface or "lo")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", int(os.environ["MASTER_PORT"])))


def test_an_interface_that_is_not_here_is_refused_with_its_variable(monkeypatch):
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, "ib0")])
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0,nope0")
    with refused("GLOO_SOCKET_IFNAME is ib0,nope0, and ", " has lo, ib0; name one of them, or unset it"):
        meeting.agree_on_master(Ranks())


def test_a_port_is_none_that_linux_gives_to_others_and_held_no_one_else_can_have_it():
    first_given, ports = int(meeting.GIVEN_PORTS.read_text().split()[0]), set()
    for _ in range(20):
        # Two runs with the same seed have other ports.
        random.seed(0)
        ports.add(meeting.free_port())
    assert len(ports) > 1
    assert all(meeting.FIRST_PORT <= port < first_given for port in ports)
    with meeting.held_port() as port, socket.socket() as listener, pytest.raises(OSError, match="in use"):
        listener.bind(("", port))
    with socket.socket() as listener:
        listener.bind(("", port))


def test_a_port_in_use_is_not_taken_and_without_another_it_is_one_that_linux_gives(monkeypatch, tmp_path):
    first_given = int(meeting.GIVEN_PORTS.read_text().split()[0])
    monkeypatch.setattr(meeting, "GIVEN_PORTS", tmp_path / "ports")
    # Where Linux does not tell.
    assert meeting.free_port() >= first_given
    with socket.socket() as listener:
        listener.bind(("", 0))
        port = listener.getsockname()[1]
        monkeypatch.setattr(meeting, "FIRST_PORT", port)
        (tmp_path / "ports").write_text(f"{port + 1}\t60999\n")
        assert meeting.free_port() not in (0, port)
    assert meeting.free_port() == port


@pytest.mark.parametrize("ranks", [Ranks(), Ranks(1, 4, 1, 4), Ranks(3, 4, 1, 2)])
def test_the_launchers_address_is_kept(ranks, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "29500")
    meeting.agree_on_master(ranks)
    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("localhost", "29500")
    assert "GLOO_SOCKET_IFNAME" not in os.environ


@pytest.mark.parametrize(
    ("address", "port", "message"),
    [
        *(("localhost", port, f"MASTER_PORT is {port!r}; it must be a port") for port in ("http", "99999", "0", "-1", "1" * 5000, "2 9")),
        *((address, "29500", f"MASTER_ADDR is {address!r}, which is") for address in ("no-such-host.invalid", "a" * 300, "a b")),
        ("no-such-host.invalid", "29500", "; give that of rank 0"),
        ("localhost", "", "MASTER_ADDR=localhost is set without the other"),
    ],
)
def test_what_is_no_address_or_no_port_is_refused_before_a_rank_waits_for_it(address, port, message, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", address)
    monkeypatch.setenv("MASTER_PORT", port)
    with refused(message):
        meeting.agree_on_master(Ranks(1, 2, 1, 2))


@pytest.mark.parametrize(("on_one_node", "listens_at"), [(True, "127.0.0.1"), (False, "::")])
def test_rank_0_listens_for_its_own_node_alone_where_all_ranks_are_on_it_and_says_which_port_is_taken(on_one_node, listens_at, monkeypatch):
    port = str(meeting.free_port())
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", port)
    with meeting.listener(on_one_node) as listener:
        assert listener.getsockname()[0] == listens_at
        with refused(f"rank 0 cannot listen at 127.0.0.1:{port} (Address already in use); give a free MASTER_PORT"):
            meeting.listener(on_one_node)


@pytest.mark.parametrize(
    ("local_size", "hostname", "suffix", "address", "interface"),
    [
        (4, "jwb0001.juwels", "i", "127.0.0.1", "lo"),
        (2, "jwb0001.juwels", "i", "jwb0001i", None),
        (2, "node17", "", "node17", None),
        (2, "x3001.alcf.anl.gov", ".hsn.alcf.anl.gov", "x3001.hsn.alcf.anl.gov", None),
    ],
)
def test_rank_0_proposes_the_address_that_the_others_can_reach(local_size, hostname, suffix, address, interface, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: hostname)
    monkeypatch.setenv(meeting.HOST_SUFFIX_VARIABLE, suffix)
    # Replaces MPI's all-gather on rank 0.
    monkeypatch.setattr(meeting, "gathered", lambda master, ranks: [master] * ranks.size)
    monkeypatch.setattr(mpi, "problem", lambda: None)
    resolved = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *name, **_: resolved.append(name) or [])
    meeting.agree_on_master(Ranks(0, 4, 0, local_size))
    assert resolved == [(address, int(os.environ["MASTER_PORT"]))]
    assert os.environ["MASTER_ADDR"] == address
    assert 0 < int(os.environ["MASTER_PORT"]) < 2**16
    assert os.environ.get("GLOO_SOCKET_IFNAME") == interface


def test_an_address_with_a_suffix_that_no_node_has_is_refused_with_the_resolvers_words(monkeypatch):
    monkeypatch.setenv(meeting.HOST_SUFFIX_VARIABLE, "i")
    monkeypatch.setattr(meeting, "gathered", lambda master, ranks: [("node17i", 29500)] * ranks.size)
    monkeypatch.setattr(mpi, "problem", lambda: None)
    monkeypatch.setattr(socket, "getaddrinfo", raises(socket.gaierror(-2, "Name or service not known")))
    with refused("MASTER_ADDR is 'node17i', which is the address of no host here (Name or service not known); correct host_suffix"):
        meeting.agree_on_master(Ranks(0, 4, 0, 2))


def raises(problem):
    def function(*_):
        raise problem

    return function


def test_under_srun_without_mpi4py_ranks_meet_on_the_first_node_of_their_step_each_step_at_a_port_of_its_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    monkeypatch.setenv("SLURM_STEP_NODELIST", "jwb[0007,0012]")
    monkeypatch.setenv(meeting.HOST_SUFFIX_VARIABLE, "i")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: None)
    ports = set()
    for job, step in ((41, 0), (41, 1), (42, 0)):
        monkeypatch.setenv("SLURM_JOB_ID", str(job))
        monkeypatch.setenv("SLURM_STEP_ID", str(step))
        masters = set()
        for rank in range(4):
            for name in meeting.MASTER:
                monkeypatch.delenv(name, raising=False)
            meeting.agree_on_master(Ranks(rank, 4, rank % 2, 2))
            masters.add(tuple(os.environ[name] for name in meeting.MASTER))
        ((address, port),) = masters
        assert (address, 10_000 <= int(port) < 30_000) == ("jwb0007i", True)
        ports.add(port)
    assert len(ports) == 3
    # Where the first node of the step need not be that of rank 0.
    monkeypatch.setenv("SLURM_DISTRIBUTION", "arbitrary")
    for name in meeting.MASTER:
        monkeypatch.delenv(name)
    with refused("Slurm started ranks that meet over MPI, and mpi4py cannot be used (", "); start with torchrun"):
        meeting.agree_on_master(Ranks(0, 4, 0, 2, "Slurm"))


def test_ranks_that_srun_did_not_join_are_told_what_was_tried_and_what_else_there_is(monkeypatch):
    with refused("Slurm started 2 ranks, MPI sees 1; start with the mpiexec of the MPI"):
        meeting.expect_size(Ranks(0, 2, source="Slurm"), 1, "MPI")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    monkeypatch.setattr(slurm, "mpi_types", lambda: ["pmix", "none", "pmi2"])
    for variables, message in (
        ({}, "--mpi=none was to join the ranks, and offers pmix, pmi2;"),
        ({"SLURM_MPI_TYPE": "pmi2"}, "--mpi=pmi2 was"),
    ):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with refused(message, "choose what their MPI speaks", "SLURM_MPI_TYPE"):
            meeting.expect_size(Ranks(0, 2, source="Slurm"), 1, "MPI")


@pytest.mark.parametrize(
    ("printed", "types"),
    [
        (
            r"MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4,pmix_v3\n",
            ["pmix", "none", "pmi2", "pmix_v4", "pmix_v3"],
        ),
        (r"srun: MPI types are...\nsrun: none\nsrun: pmix_v3\nsrun: pmi2\n", ["none", "pmix_v3", "pmi2"]),
        (r"srun: fatal: Could not establish a configuration source\n", []),
        (None, []),
    ],
)
def test_srun_lists_what_its_mpi_may_be(printed, types, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    if printed is not None:
        (tmp_path / "srun").write_text(f"#!/bin/sh\nprintf '{printed}' >&2\n")
        (tmp_path / "srun").chmod(0o755)
    assert slurm.mpi_types() == types

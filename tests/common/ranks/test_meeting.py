"""How ranks meet: each learns of one that failed before, none waits for ever, and none listens to other machines without need."""

import json
import os
import random
import shlex
import socket
import time

import psutil
import pytest

from common.ranks import meeting, mpi
from common.ranks.launcher_variables import Ranks
from frameworks.shared.horovod import horovod
from tests.support.mistakes import refused
from tests.support.running import BIN, completed
from tests.support.small_data import write_digits

ONE_EPOCH = ("--epochs", "1", "--no-step-breakdown", "--machine", "here", "--run-id", "run")


def two_ranks(how):
    """Returns (exit status, lines printed, seconds) of two ranks of tests.support.meeting_run."""
    begun = time.perf_counter()
    # Unbuffered, the end of a line is written apart, and lines of two ranks may mix.
    variables = {"PYTHONUNBUFFERED": ""}
    done = completed(BIN / "mpiexec", "-n", 2, BIN / "python", "-m", "tests.support.meeting_run", how, variables=variables, seconds=50)
    return done.returncode, (done.stdout + done.stderr).splitlines(), time.perf_counter() - begun


@pytest.mark.matrix
def test_a_rank_that_fails_before_it_meets_the_others_tells_them_why_and_says_so_before_slow_ones_come():
    status, lines, _ = two_ranks("slow")
    failure = f"rank 1 on {socket.gethostname()}: no data"
    # Without a word of the launcher.
    assert (status, lines) == (2, ["rank 1 records no data", f"error: {failure}", f"rank 0 records {failure}"])


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


def test_horovod_over_gloo_is_refused_where_its_host_has_no_address_and_its_server_listens_at_one(monkeypatch):
    port = horovod.serve_rendezvous([], "127.0.0.1")
    listening = {connection.laddr for connection in psutil.Process().net_connections() if connection.status == "LISTEN"}
    assert ("127.0.0.1", port) in listening
    for name in ("no-such-host.invalid", "a" * 300):
        monkeypatch.setattr(socket, "gethostname", lambda name=name: name)
        with refused(f"looks up the name of its host, and {name} has no address; add it to /etc/hosts"):
            horovod.begin_over_gloo(Ranks(0, 2, 0, 2, "MPICH/Intel PMI"))


@pytest.fixture(autouse=True)
def _no_master(monkeypatch):
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, "ib0")])
    for name in (*meeting.MASTER, meeting.GLOO_INTERFACE):
        # setenv makes monkeypatch remove variables that the code under test sets.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.parametrize("interface", [None, "ib0"])
def test_a_single_rank_uses_the_loopback_unless_the_user_chose_an_interface_and_a_free_port(interface, monkeypatch):
    if interface:
        monkeypatch.setenv(meeting.GLOO_INTERFACE, interface)
    meeting.agree_on_master(Ranks())
    assert (os.environ["MASTER_ADDR"], os.environ[meeting.GLOO_INTERFACE]) == ("127.0.0.1", interface or "lo")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", int(os.environ["MASTER_PORT"])))


def test_a_port_is_none_that_linux_gives_to_others_and_held_no_one_else_can_have_it(monkeypatch, tmp_path):
    first_given, ports = int(meeting.GIVEN_PORTS.read_text().split()[0]), set()
    for _ in range(20):
        # Two runs with the same seed have other ports.
        random.seed(0)
        ports.add(meeting.free_port())
    assert len(ports) > 1
    assert all(meeting.FIRST_PORT <= port < first_given for port in ports)
    with meeting.held_port() as port, socket.socket() as listener, pytest.raises(OSError, match="in use"):
        listener.bind(("", port))
    monkeypatch.setattr(meeting, "GIVEN_PORTS", tmp_path / "ports")
    # Where Linux does not tell, and where all others are in use.
    assert meeting.free_port() >= first_given
    monkeypatch.setattr(meeting, "FIRST_PORT", port)
    (tmp_path / "ports").write_text(f"{port + 1}\t60999\n")
    assert meeting.free_port() == port
    with socket.socket() as listener:
        listener.bind(("", port))
        assert meeting.free_port() not in (0, port)


def test_the_launchers_address_is_kept(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "29500")
    meeting.agree_on_master(Ranks(3, 4, 1, 2))
    assert [os.environ.get(name) for name in (*meeting.MASTER, meeting.GLOO_INTERFACE)] == ["localhost", "29500", None]


@pytest.mark.parametrize(
    ("address", "port", "interface", "message"),
    [
        *(("localhost", port, "", f"MASTER_PORT is {port!r}; it must be a port") for port in ("http", "99999", "0", "-1", "1" * 5000)),
        *((address, "29500", "", f"MASTER_ADDR is {address!r}, which is") for address in ("a" * 300, "a b")),
        ("no-such-host.invalid", "29500", "", "; give that of rank 0"),
        ("localhost", "", "", "MASTER_ADDR=localhost is set without the other"),
        ("localhost", "29500", "ib0,nope0", " has lo, ib0; name one of them, or unset it"),
    ],
)
def test_what_is_no_address_no_port_or_no_interface_is_refused_before_a_rank_waits_for_it(address, port, interface, message, monkeypatch):
    for name, value in ((meeting.MASTER[0], address), (meeting.MASTER[1], port), (meeting.GLOO_INTERFACE, interface)):
        monkeypatch.setenv(name, value)
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
    def resolve(*_):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setenv(meeting.HOST_SUFFIX_VARIABLE, "i")
    monkeypatch.setattr(meeting, "gathered", lambda master, ranks: [("node17i", 29500)] * ranks.size)
    monkeypatch.setattr(mpi, "problem", lambda: None)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with refused("MASTER_ADDR is 'node17i', which is the address of no host here (Name or service not known); correct host_suffix"):
        meeting.agree_on_master(Ranks(0, 4, 0, 2))

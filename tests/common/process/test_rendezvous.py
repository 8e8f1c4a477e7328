"""MASTER_ADDR and MASTER_PORT: kept if set, else agreed on."""

import os
import socket
import sys

import pytest

from common.process import meeting, mpi, rendezvous, slurm
from common.process.ranks import Ranks
from tests.support.mistakes import refused


@pytest.fixture(autouse=True)
def _no_master(monkeypatch):
    for name in (*rendezvous.MASTER, "GLOO_SOCKET_IFNAME", "SLURM_MPI_TYPE", "SLURM_STEP_ID"):
        # setenv makes monkeypatch remove variables that the code under test sets.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_a_single_rank_uses_the_loopback_and_a_free_port():
    rendezvous.agree_on_master(Ranks())
    assert os.environ["MASTER_ADDR"] == "127.0.0.1"
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", int(os.environ["MASTER_PORT"])))


def test_the_port_is_none_that_linux_gives_to_others_meanwhile():
    first_given = int(rendezvous.GIVEN_PORTS.read_text().split()[0])
    assert all(rendezvous.FIRST_PORT <= rendezvous.free_port() < first_given for _ in range(20))


def test_no_one_else_can_have_a_port_while_it_is_held():
    with rendezvous.held_port() as port, socket.socket() as listener, pytest.raises(OSError, match="in use"):
        listener.bind(("", port))
    with socket.socket() as listener:
        listener.bind(("", port))


def test_a_port_in_use_is_not_taken_and_without_another_it_is_one_that_linux_gives(monkeypatch, tmp_path):
    first_given = int(rendezvous.GIVEN_PORTS.read_text().split()[0])
    monkeypatch.setattr(rendezvous, "GIVEN_PORTS", tmp_path / "ports")
    # Where Linux does not tell.
    assert rendezvous.free_port() >= first_given
    with socket.socket() as listener:
        listener.bind(("", 0))
        port = listener.getsockname()[1]
        monkeypatch.setattr(rendezvous, "FIRST_PORT", port)
        (tmp_path / "ports").write_text(f"{port + 1}\t60999\n")
        assert rendezvous.free_port() not in (0, port)
    assert rendezvous.free_port() == port


@pytest.mark.parametrize("ranks", [Ranks(), Ranks(1, 4, 1, 4), Ranks(3, 4, 1, 2)])
def test_the_launchers_address_is_kept(ranks, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    with refused("MASTER_ADDR=localhost is set without the other; set both"):
        rendezvous.agree_on_master(ranks)
    monkeypatch.setenv("MASTER_PORT", "29500")
    rendezvous.agree_on_master(ranks)
    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("localhost", "29500")
    assert "GLOO_SOCKET_IFNAME" not in os.environ


@pytest.mark.parametrize(
    ("address", "port", "message"),
    [
        *(("localhost", port, f"MASTER_PORT is {port!r}; it must be a port") for port in ("http", "99999", "0", "-1", "1" * 5000, "2 9")),
        *((address, "29500", f"MASTER_ADDR is {address!r}, which is") for address in ("no-such-host.invalid", "a" * 300, "a b")),
        ("localhost", "", "MASTER_ADDR=localhost is set without the other"),
    ],
)
def test_what_is_no_address_or_no_port_is_refused_before_a_rank_waits_for_it(address, port, message, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", address)
    monkeypatch.setenv("MASTER_PORT", port)
    with refused(message):
        rendezvous.agree_on_master(Ranks(1, 2, 1, 2))


@pytest.mark.parametrize(("on_one_node", "listens_at"), [(True, "127.0.0.1"), (False, "::")])
def test_rank_0_listens_for_its_own_node_alone_where_all_ranks_are_on_it_and_says_which_port_is_taken(on_one_node, listens_at, monkeypatch):
    port = str(rendezvous.free_port())
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", port)
    with rendezvous.listener(on_one_node) as listener:
        assert listener.getsockname()[0] == listens_at
        with refused(f"rank 0 cannot listen at 127.0.0.1:{port} (Address already in use); give a free MASTER_PORT"):
            rendezvous.listener(on_one_node)


def test_gloo_s_interface_is_left_as_the_user_chose_it(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0")
    rendezvous.agree_on_master(Ranks())
    assert os.environ["GLOO_SOCKET_IFNAME"] == "ib0"


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
    monkeypatch.setenv(rendezvous.HOST_SUFFIX_VARIABLE, suffix)
    # Replaces MPI's all-gather on rank 0.
    monkeypatch.setattr(rendezvous, "gathered", lambda master, ranks: [master] * ranks.size)
    monkeypatch.setattr(mpi, "problem", lambda: None)
    rendezvous.agree_on_master(Ranks(0, 4, 0, local_size))
    assert os.environ["MASTER_ADDR"] == address
    assert 0 < int(os.environ["MASTER_PORT"]) < 2**16
    assert os.environ.get("GLOO_SOCKET_IFNAME") == interface


def test_under_srun_without_mpi4py_ranks_meet_on_the_first_node_of_their_step_each_step_at_a_port_of_its_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    monkeypatch.setenv("SLURM_STEP_NODELIST", "jwb[0007,0012]")
    monkeypatch.setenv(rendezvous.HOST_SUFFIX_VARIABLE, "i")
    ports = set()
    for job, step in ((41, 0), (41, 1), (42, 0)):
        monkeypatch.setenv("SLURM_JOB_ID", str(job))
        monkeypatch.setenv("SLURM_STEP_ID", str(step))
        masters = set()
        for rank in range(4):
            for name in rendezvous.MASTER:
                monkeypatch.delenv(name, raising=False)
            rendezvous.agree_on_master(Ranks(rank, 4, rank % 2, 2))
            masters.add(tuple(os.environ[name] for name in rendezvous.MASTER))
        ((address, port),) = masters
        assert (address, 10_000 <= int(port) < 30_000) == ("jwb0007i", True)
        ports.add(port)
    assert len(ports) == 3
    # Where the first node of the step need not be that of rank 0.
    monkeypatch.setenv("SLURM_DISTRIBUTION", "arbitrary")
    for name in rendezvous.MASTER:
        monkeypatch.delenv(name)
    with refused("Slurm started ranks that meet over MPI, and mpi4py cannot be used (", "); start with torchrun"):
        rendezvous.agree_on_master(Ranks(0, 4, 0, 2, "Slurm"))


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

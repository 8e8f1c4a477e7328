"""Slurm: where the ranks of a step meet, and what srun offers to join them."""

import os
import socket
import sys

import pytest

from common.ranks import meeting, slurm
from common.ranks.launcher_variables import Ranks
from tests.support.mistakes import refused

SRUN = Ranks(0, 4, 0, 2, "Slurm")


@pytest.fixture
def expect_master(monkeypatch):
    """A function that expects a rank of this step to meet the others at an address and a port; mpi4py is not there."""
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    monkeypatch.setenv(meeting.HOST_SUFFIX_VARIABLE, "i")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: None)

    def expect(ranks, job, step, port):
        for name, value in {"SLURM_STEP_NODELIST": "jwb[0007,0012]", "SLURM_JOB_ID": job, "SLURM_STEP_ID": step}.items():
            monkeypatch.setenv(name, str(value))
        for name in (*meeting.MASTER, meeting.GLOO_INTERFACE):
            # setenv makes monkeypatch remove variables that the code under test sets.
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        meeting.agree_on_master(ranks)
        assert [os.environ[name] for name in meeting.MASTER] == ["jwb0007i", str(port)]

    return expect


def test_without_mpi4py_ranks_meet_on_the_first_node_of_their_step_each_step_at_a_port_of_its_own(expect_master, monkeypatch):
    for job, step, port in ((41, 0, 11_369), (41, 1, 11_370), (42, 0, 12_378)):
        for ranks in (SRUN, SRUN._replace(rank=3, local_rank=1)):
            expect_master(ranks, job, step, port)
    # Where the first node of the step need not be that of rank 0.
    monkeypatch.setenv("SLURM_DISTRIBUTION", "arbitrary")
    with refused("Slurm started ranks that meet over MPI, and mpi4py cannot be used (", "); start with torchrun"):
        expect_master(SRUN, 41, 0, None)


@pytest.mark.parametrize(
    ("variables", "messages"),
    [
        ({}, ["Slurm started 4 ranks, MPI sees 1; start with the mpiexec of the MPI"]),
        ({"SLURM_STEP_ID": "0"}, ["--mpi=none was to join the ranks, and offers pmix, pmi2;", "choose what their MPI speaks"]),
        ({"SLURM_STEP_ID": "0", "SLURM_MPI_TYPE": "pmi2"}, ["--mpi=pmi2 was", "offers pmix, none;"]),
    ],
)
def test_ranks_that_srun_did_not_join_are_told_what_was_tried_and_what_else_there_is(variables, messages, monkeypatch):
    monkeypatch.setattr(slurm, "mpi_types", lambda: ["pmix", "none", "pmi2"])
    for name in ("SLURM_STEP_ID", "SLURM_MPI_TYPE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with refused(*messages):
        meeting.expect_size(SRUN, 1, "MPI")


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

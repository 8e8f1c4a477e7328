"""Ranks on several nodes are refused where their launcher knows no nodes, with what to give in that batch system."""

import pytest

from launch.launchers import unknown_nodes
from launch.launchers.commands import Launcher, Start
from tests.support.mistakes import refused

SLURM, LSF = {"SLURM_JOB_ID": "7"}, {"LSB_JOBID": "7", "LSB_DJOB_HOSTFILE": "/h"}


@pytest.mark.parametrize(
    ("environ", "srun", "parts"),
    [
        ({}, None, ["2 nodes are planned, and mpich knows none: all ranks would be on one", "--hosts FILE"]),
        ({}, "/bin/srun", ["--hosts FILE"]),
        (SLURM, None, ["in this job of Slurm", "put srun into PATH"]),
        ({"PBS_JOBID": "7", "PBS_NODEFILE": "/n"}, None, ["in this job of PBS", '--hosts "$PBS_NODEFILE"', "PALS"]),
        (LSF, None, ["LSF", '--hosts "$LSB_DJOB_HOSTFILE"', "jsrun is not"]),
        ({"FLUX_URI": "local:///f"}, None, ["Flux", "flux run is not"]),
        ({"OAR_JOB_ID": "7"}, None, ["OAR", '--hosts "$OAR_NODEFILE"']),
        ({"PE_HOSTFILE": "/h", "JOB_ID": "7"}, None, ["Grid Engine", "$PE_HOSTFILE"]),
    ],
)
def test_the_cause_is_named_with_what_to_give(environ, srun, parts, monkeypatch):
    monkeypatch.setattr(unknown_nodes, "which", lambda _: srun)
    text = unknown_nodes.problem(2, "mpich", (), environ)
    assert text is not None
    assert [part for part in parts if part not in text] == []


@pytest.mark.parametrize(
    ("num_nodes", "arguments", "environ", "srun"),
    [
        (1, (), LSF, None),
        (2, (), SLURM, "/bin/srun"),
        (2, ("-f", "hosts"), LSF, None),
        (2, ("--hostfile", "hosts"), {}, None),
        (2, ("-hosts", "a,b"), {}, None),
        (2, (), {"HYDRA_HOST_FILE": "/hosts"}, None),
    ],
)
def test_a_launcher_that_is_given_its_nodes_or_needs_none_is_not_refused(num_nodes, arguments, environ, srun, monkeypatch):
    monkeypatch.setattr(unknown_nodes, "which", lambda _: srun)
    assert unknown_nodes.problem(num_nodes, "mpich", arguments, environ) is None


@pytest.mark.parametrize("name", ["mpich", "intel", "openmpi", "pals", "aprun", "srun"])
def test_only_a_launcher_of_a_batch_system_starts_ranks_on_nodes_that_are_not_listed(name, monkeypatch):
    for variable in (*unknown_nodes.NODES_VARIABLES, *(name for system in unknown_nodes.BATCH_SYSTEMS for name in system.variables)):
        monkeypatch.delenv(variable, raising=False)
    start = Start(Launcher(name, "it"), 8, 4, 1, ("python",), {})
    if name in ("pals", "aprun", "srun"):
        assert "python" in start.argv()
    else:
        with refused(f"2 nodes are planned, and {name} knows none"):
            start.argv()

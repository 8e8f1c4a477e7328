"""Rank and world size from the variables of real launchers, errors for contradictory or missing ones, and the node."""

import socket

import pytest

from common.ranks import launcher_variables
from common.ranks.launcher_variables import from_environment
from tests.support.mistakes import refused

# Ranks are dealt out to the nodes in turn: the local rank does not follow from the rank.
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2", "PMI_FD": "9", "HYDI_CONTROL_FD": "7"}
INTEL = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4", "I_MPI_HYDRA_UUID": "f3c10000-aa"}
PALS = {
    "PALS_RANKID": "6", "PALS_NODEID": "1", "PALS_LOCAL_RANKID": "3", "PALS_LOCAL_SIZE": "4", "PALS_DEPTH": "8", "PALS_APID": "0a1b",
    "PMI_RANK": "6", "PMI_SIZE": "8", "PMI_LOCAL_RANK": "3", "PMI_LOCAL_SIZE": "4", "PMI_UNIVERSE_SIZE": "8", "PBS_JOBID": "1.polaris",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_UNIVERSE_SIZE": "4", "PMIX_RANK": "3",
}  # fmt: skip
HOROVODRUN = {
    "HOROVOD_HOSTNAME": "localhost", "HOROVOD_RANK": "1", "HOROVOD_SIZE": "4", "HOROVOD_LOCAL_RANK": "0", "HOROVOD_LOCAL_SIZE": "2",
    "HOROVOD_CROSS_RANK": "1", "HOROVOD_CROSS_SIZE": "2", "HOROVOD_CONTROLLER": "gloo",
}  # fmt: skip
SBATCH = {
    "SLURM_JOB_ID": "17", "SLURM_NTASKS": "8", "SLURM_NPROCS": "8", "SLURM_TASKS_PER_NODE": "4(x2)", "SLURM_NNODES": "2",
    "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
}  # fmt: skip


def step(procid, localid, nodeid, num_tasks, tasks_per_node):
    """The environment of a task of srun in a job of sbatch."""
    values = {"PROCID": procid, "LOCALID": localid, "NODEID": nodeid, "STEP_NUM_TASKS": num_tasks, "STEP_TASKS_PER_NODE": tasks_per_node}
    return SBATCH | {f"SLURM_{name}": str(value) for name, value in values.items()}


def torchrun(rank, size, local_rank, local_size):
    values = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": local_size, "MASTER_PORT": 29500}
    return {name: str(value) for name, value in values.items()} | {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "n1"}


def pmi2(rank, size):
    """The variables of Slurm's pmi2 plugin, without local ones (slurm: src/plugins/mpi/pmi2/mpi_pmi2.c)."""
    return {"PMI_RANK": str(rank), "PMI_SIZE": str(size), "PMI_FD": "12", "PMI_JOBID": "17.0"}


def flux(rank, size, local_rank, num_nodes):
    """The variables of `flux run` (flux-environment(7)), which has no local size."""
    values = {"TASK_RANK": rank, "JOB_SIZE": size, "TASK_LOCAL_ID": local_rank, "JOB_NNODES": num_nodes}
    return {f"FLUX_{name}": value for name, value in values.items()}


MVAPICH = {f"MV2_COMM_WORLD_{name}": value for name, value in {"RANK": "5", "SIZE": "8", "LOCAL_RANK": "1", "LOCAL_SIZE": "4"}.items()}


ENVIRONMENTS = {
    "Flux": (flux("5", "8", "1", "2"), (5, 8, 1, 4, "Flux")),
    "Flux with its PMI": (flux("5", "8", "1", "2") | pmi2(5, 8), (5, 8, 1, 4, "Flux")),
    "Open MPI inside Flux, one daemon a node": (flux("1", "2", "0", "2") | OPEN_MPI, (3, 4, 0, 2, "Open MPI")),
    "MVAPICH2": (MVAPICH, (5, 8, 1, 4, "MVAPICH")),
    "MVAPICH2 with Slurm's PMI": (MVAPICH | step(5, 1, 1, 8, "4(x2)") | pmi2(5, 8), (5, 8, 1, 4, "MVAPICH")),
    "alone": ({"HOME": "/home/me", "PATH": "/bin"}, (0, 1, 0, 1, "alone")),
    "Hydra": (HYDRA, (1, 4, 0, 2, "MPICH/Intel PMI")),
    "Intel MPI": (INTEL, (5, 8, 1, 4, "MPICH/Intel PMI")),
    "PALS": (PALS, (6, 8, 3, 4, "PALS")),
    "PALS with its local size in PMI's variable only": ({k: v for k, v in PALS.items() if k != "PALS_LOCAL_SIZE"}, (6, 8, 3, 4, "PALS")),
    "Open MPI": (OPEN_MPI, (3, 4, 0, 2, "Open MPI")),
    "Cray's PMI": ({"PMI_RANK": "5", "PMI_SIZE": "8", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "4"}, (5, 8, 1, 4, "MPICH/Intel PMI")),
    "srun on one node": (step(1, 1, 0, 3, "3"), (1, 3, 1, 3, "Slurm")),
    "srun, second node of unequal ones": (step(5, 1, 1, 11, "4(x2),3"), (5, 11, 1, 4, "Slurm")),
    "srun, last node of unequal ones": (step(10, 2, 2, 11, "4(x2),3"), (10, 11, 2, 3, "Slurm")),
    "srun, tasks dealt out to the nodes in turn": (step(2, 1, 0, 4, "2(x2)"), (2, 4, 1, 2, "Slurm")),
    "srun with pmi2 on two nodes": (step(3, 1, 1, 4, "2(x2)") | pmi2(3, 4), (3, 4, 1, 2, "Slurm")),
    "srun with Cray's PMI": (
        step(3, 1, 1, 4, "2(x2)") | pmi2(3, 4) | {"PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "2"},
        (3, 4, 1, 2, "MPICH/Intel PMI"),
    ),
    "sbatch's own shell": (SBATCH, (0, 1, 0, 1, "alone")),
    "an interactive step": (step(0, 0, 0, 1, "1"), (0, 1, 0, 1, "Slurm")),
    "torchrun": (torchrun(1, 4, 0, 2), (1, 4, 0, 2, "torchrun")),
    "horovodrun over Gloo": (HOROVODRUN, (1, 4, 0, 2, "horovodrun")),
    "torchrun inside srun, one a node": (step(1, 0, 1, 2, "1(x2)") | torchrun(5, 8, 1, 4), (5, 8, 1, 4, "torchrun")),
    "Hydra inside srun, one proxy a node": (step(1, 0, 1, 2, "1(x2)") | INTEL, (5, 8, 1, 4, "MPICH/Intel PMI")),
    "Open MPI inside srun, one daemon a node": (step(1, 0, 1, 2, "1(x2)") | OPEN_MPI, (3, 4, 0, 2, "Open MPI")),
    "Hydra with variables that say the same": (HYDRA | {"RANK": "1", "WORLD_SIZE": "4"}, (1, 4, 0, 2, "MPICH/Intel PMI")),
    "RANK and WORLD_SIZE set by hand": ({"RANK": "2", "WORLD_SIZE": "4"}, (2, 4, 2, 4, "torchrun")),
}


@pytest.mark.parametrize(("environ", "expected"), ENVIRONMENTS.values(), ids=ENVIRONMENTS.keys())
def test_ranks_come_from_the_launchers_variables(environ, expected):
    assert from_environment(environ) == expected


def test_every_source_is_tried_and_knows_the_ranks_of_a_node():
    """Without their number all ranks would count as those of one node. Slurm's are in lists of the tasks of each node."""
    sources = [*launcher_variables.LAUNCHERS, *launcher_variables.BATCH_SYSTEMS]
    assert [source.name for source in sources if not (source.local_size or source.num_nodes)] == [launcher_variables.SLURM.name]
    assert {source.name for source in sources} <= {expected[-1] for _, expected in ENVIRONMENTS.values()}


@pytest.mark.parametrize("changes", [{"PMI_RANK": "3"}, {"PMI_SIZE": "2"}])
@pytest.mark.parametrize(
    ("environ", "rank_name", "size_name"),
    [
        (OPEN_MPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ({"RANK": "1", "WORLD_SIZE": "4"}, "RANK", "WORLD_SIZE"),
        (step(1, 1, 0, 4, "4"), "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ],
)
def test_the_error_for_a_contradiction_has_both_launchers_variables_and_values(environ, rank_name, size_name, changes):
    stale = {"PMI_RANK": "1", "PMI_SIZE": "4", "PMI_LOCAL_RANK": "1"} | changes
    variables = {**environ, rank_name: "1", size_name: "4"} | stale
    with refused(*(f"{name}={variables[name]}" for name in (rank_name, size_name, "PMI_RANK", "PMI_SIZE")), "unset"):
        from_environment(variables)


@pytest.mark.parametrize(
    ("environ", "parts"),
    [
        (HYDRA | {"PMI_RANK": "one"}, ["PMI_RANK", "'one'", "integer"]),
        (HYDRA | {"MPI_LOCALNRANKS": "2.5"}, ["MPI_LOCALNRANKS", "'2.5'"]),
        ({"RANK": "0", "WORLD_SIZE": str(10**21)}, ["WORLD_SIZE", str(10**21), "up to 7 digits"]),
        ({"RANK": "0", "WORLD_SIZE": "1_0"}, ["WORLD_SIZE is '1_0'"]),
        (HYDRA | {"PMI_RANK": "4"}, ["PMI_RANK=4", "PMI_SIZE=4", "0 to size - 1"]),
        (HYDRA | {"PMI_RANK": "-1"}, ["PMI_RANK=-1"]),
        (HYDRA | {"MPI_LOCALRANKID": "2"}, ["local rank 2 of 2"]),
        (HYDRA | {"MPI_LOCALNRANKS": "5"}, ["local rank 0 of 5"]),
        ({"PMI_RANK": "0"}, ["PMI_SIZE is not set", "one launcher"]),
        ({"RANK": "0"}, ["WORLD_SIZE is not set"]),
        ({"FLUX_JOB_SIZE": "2"}, ["FLUX_TASK_RANK is not set"]),
        *(
            ({name: "4"}, [f"{name}=4", "says that there are 4 ranks", "unset"])
            for name in ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "HOROVOD_SIZE")
        ),
        ({"SLURM_PROCID": "3"}, ["SLURM_PROCID=3 (Slurm) says that there are other ranks", "srun"]),
        (flux("5", "8", "1", "2") | pmi2(1, 2), ["PMI_RANK=1 PMI_SIZE=2", "contradicts FLUX_TASK_RANK=5 FLUX_JOB_SIZE=8"]),
        ({"SLURM_STEP_NUM_TASKS": "2"}, ["SLURM_PROCID is not set"]),
        ({"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2"}, ["RANK is not set"]),
    ],
)
def test_invalid_values_give_a_one_line_error_with_the_variable(environ, parts):
    with refused(*parts):
        from_environment(environ)


@pytest.mark.parametrize(
    "environ",
    [
        {"MPT_MPI_RANK": "1", "MPT_LRANK": "1"},
        {name: value for name, value in PALS.items() if not name.startswith("PMI_")} | {"PMIX_RANK": "6"},
        PALS | {"PMI_SIZE": ""},
        {"PMIX_RANK": "1"},
        {"ALPS_APP_PE": "1"},
    ],
)
def test_where_no_variable_has_the_size_mpi_is_asked(environ, monkeypatch):
    monkeypatch.setattr(launcher_variables, "_from_mpi", lambda: launcher_variables.Ranks(6, 8, 2, 4, "mpi4py"))
    assert from_environment(environ) == (6, 8, 2, 4, "mpi4py")


def test_a_node_is_named_by_its_boot_or_else_as_a_host(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher_variables, "BOOT_ID", tmp_path / "boot_id")
    assert launcher_variables.node_name() == socket.gethostname()
    (tmp_path / "boot_id").write_text("one-boot\n")
    assert launcher_variables.node_name() == "one-boot"


def test_a_rank_names_the_variables_that_its_matrix_has_set_and_that_did_not_reach_it(monkeypatch):
    monkeypatch.setenv("A", "")
    monkeypatch.delenv("B", raising=False)
    plain = ["ddp.py", "--epochs", "2"]
    launcher_variables.expect_variables(plain)
    argv = [*plain, launcher_variables.expect_variables_argument(["A"])]
    launcher_variables.expect_variables(argv)
    assert argv == plain
    with refused("B, which the matrix has set, did not reach this rank; ", "--export=ALL"):
        launcher_variables.expect_variables([*plain, launcher_variables.expect_variables_argument(["A", "B"])])


def test_more_ranks_on_a_node_than_are_planned_are_refused(monkeypatch):
    ranks = launcher_variables.Ranks(1, 4, 1, 2, "Slurm")
    launcher_variables.expect_planned(ranks)
    monkeypatch.setenv(launcher_variables.RANKS_PER_NODE, "2")
    launcher_variables.expect_planned(ranks)
    with refused(f"4 of 4 ranks are on {socket.gethostname()}, and 2 on a node are planned: Slurm has too few nodes; list them"):
        launcher_variables.expect_planned(ranks._replace(local_size=4))

"""The command that each launcher gets, and which launcher is found where."""

import pytest

from common.config import Settings, parse
from common.errors import UserError
from common.records import ROOT
from launch.launchers import LAUNCHERS, WITHOUT_MPI, Start, command, find, identify, needs_mpi
from launch.plan import Job

START = Start(
    num_ranks=5,
    ranks_per_node=2,
    threads=3,
    python=".venv/bin/python",
    module="frameworks.ddp",
    arguments=("--epochs", "2"),
    executable="the/launcher",
)
PROGRAM = ".venv/bin/python -m frameworks.ddp --epochs 2"

COMMANDS = {
    "mpich": f"the/launcher -n 5 -ppn 2 {PROGRAM}",
    "openmpi": f"the/launcher -n 5 --map-by ppr:2:node:OVERSUBSCRIBE --bind-to none {PROGRAM}",
    "intel": f"the/launcher -n 5 -ppn 2 {PROGRAM}",
    "pals": f"the/launcher -n 5 --ppn 2 --depth 3 --cpu-bind depth {PROGRAM}",
    "srun": f"the/launcher --nodes=3 --ntasks=5 --ntasks-per-node=2 --cpus-per-task=3 --cpu-bind=cores --mpi=pmi2 {PROGRAM}",
    "torchrun": "the/launcher --standalone --nproc-per-node=5 -m frameworks.ddp --epochs 2",
}


def test_these_tests_know_every_launcher():
    assert COMMANDS.keys() == LAUNCHERS.keys()
    assert LAUNCHERS.keys() >= WITHOUT_MPI


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_of_a_launcher(name):
    start = START._replace(ranks_per_node=5) if name == "torchrun" else START
    assert LAUNCHERS[name](start) == COMMANDS[name].split()


def test_torchrun_refuses_more_than_one_node():
    with pytest.raises(UserError, match="one node"):
        LAUNCHERS["torchrun"](START)


@pytest.mark.parametrize(("num_ranks", "ranks_per_node", "nodes"), [(1, 1, 1), (4, 4, 1), (4, 2, 2), (5, 4, 2), (3, 1, 3)])
def test_nodes_are_as_many_as_the_ranks_need(num_ranks, ranks_per_node, nodes):
    assert START._replace(num_ranks=num_ranks, ranks_per_node=ranks_per_node).num_nodes == nodes


def test_the_command_of_a_job_says_all_of_its_settings():
    job = Job("horovod_torch", 4, 2, Settings(threads=3, data_dir="/data/my mnist", run_id="it"))
    argv, variables = command(job, "mpich", ".venv/bin/mpiexec")
    assert argv[:8] == [".venv/bin/mpiexec", "-n", "4", "-ppn", "2", ".venv/bin/python", "-m", "frameworks.horovod_torch"]
    assert str(parse(Settings, "it", "", argv[8:]).data_dir) == "/data/my mnist"
    assert parse(Settings, "it", "", argv[8:]).run_id == "it"
    assert variables == {"OMP_NUM_THREADS": "3"}


@pytest.mark.parametrize(
    ("backend", "needs"), [("horovod_torch", True), ("horovod_tf", True), ("ddp", False), ("single", False), ("deepspeed_zero", False)]
)
def test_horovod_needs_mpi(backend, needs):
    assert needs_mpi(backend) is needs


HYDRA = """HYDRA build details:
    Version:                                 5.0.2
    CC:                              cc
    Configure options:                       --with-device=ch4:ucx,ofi --with-pm=hydra:gforker
    Process Manager:                         pmi
    Launchers available:                     ssh rsh fork slurm ll lsf sge manual persist
    Resource management kernels available:   user slurm ll lsf sge pbs cobalt
"""
OPEN_MPI_4 = "mpiexec (OpenRTE) 4.1.5\n\nReport bugs to http://www.open-mpi.org/community/help/\n"
OPEN_MPI_5 = "mpiexec (Open MPI) 5.0.5\n\nReport bugs to https://www.open-mpi.org/community/help/\n"
PALS = "mpiexec (PALS) 1.2.12\n"
UNKNOWN = "mpiexec: unrecognized option --version\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [(HYDRA, "mpich"), (OPEN_MPI_4, "openmpi"), (OPEN_MPI_5, "openmpi"), (PALS, "pals"), (UNKNOWN, None), ("", None)],
)
def test_an_mpiexec_is_known_by_what_it_says_of_itself(text, name):
    assert identify(text) == name


OWN = ".venv/bin/mpiexec"
SLURM, PBS = {"SLURM_JOB_ID": "17"}, {"PBS_JOBID": "17.polaris"}


def found(root, wanted, environ, present):
    """What find() finds where these programs are present, in the environment or on the PATH, and say this of their version."""
    for executable in present:
        if "/" in executable:
            (root / executable).parent.mkdir(parents=True, exist_ok=True)
            (root / executable).touch()
    return find(wanted, environ, root, lambda name: f"/usr/bin/{name}" if name in present else None, present.get)


@pytest.mark.parametrize(
    ("wanted", "environ", "present", "expected"),
    [
        (None, {}, {OWN: HYDRA}, ("mpich", OWN)),
        (None, {}, {"mpiexec": OPEN_MPI_4}, ("openmpi", "mpiexec")),
        # Outside an allocation the environment's own comes first, unless the user asks for another.
        (None, {}, {OWN: HYDRA, "mpiexec": PALS, "srun": None}, ("mpich", OWN)),
        ("mpich", {}, {OWN: HYDRA, "mpiexec": HYDRA}, ("mpich", OWN)),
        ("openmpi", {}, {OWN: HYDRA, "mpiexec": OPEN_MPI_5}, ("openmpi", "mpiexec")),
        # In an allocation the site's comes first: it alone knows the nodes.
        (None, PBS, {OWN: HYDRA, "mpiexec": PALS}, ("pals", "mpiexec")),
        (None, PBS, {OWN: HYDRA}, ("mpich", OWN)),
        (None, PBS, {OWN: HYDRA, "mpiexec": UNKNOWN}, ("mpich", OWN)),
        ("mpich", PBS, {OWN: HYDRA, "mpiexec": PALS}, ("mpich", OWN)),
        (None, SLURM, {OWN: HYDRA, "mpiexec": OPEN_MPI_5, "srun": None}, ("srun", "srun")),
        (None, SLURM, {OWN: HYDRA}, ("mpich", OWN)),
        ("mpich", SLURM, {OWN: HYDRA, "srun": None}, ("mpich", OWN)),
        ("srun", {}, {"srun": None}, ("srun", "srun")),
        ("torchrun", {}, {".venv/bin/torchrun": None, "torchrun": None}, ("torchrun", ".venv/bin/torchrun")),
        ("torchrun", {}, {"torchrun": None}, ("torchrun", "torchrun")),
    ],
)
def test_the_launcher_that_is_found(wanted, environ, present, expected, tmp_path):
    assert found(tmp_path, wanted, environ, present) == expected


@pytest.mark.parametrize(
    ("wanted", "environ", "present", "said"),
    [
        (None, {}, {}, ["no mpiexec found", "launch/setup.sh", "--launcher"]),
        (None, SLURM, {}, ["no mpiexec found"]),
        (None, PBS, {}, ["no mpiexec found"]),
        (None, {}, {"mpiexec": UNKNOWN}, ["no mpiexec found", "mpiexec is of an unknown kind"]),
        ("aprun", {}, {OWN: HYDRA}, ["no launcher 'aprun'", *LAUNCHERS]),
        ("srun", {}, {OWN: HYDRA}, ["--launcher srun", "no srun on the PATH"]),
        ("torchrun", {}, {OWN: HYDRA}, ["--launcher torchrun", "no torchrun on the PATH"]),
        ("mpich", {}, {}, ["no mpiexec of mpich found"]),
        ("pals", {}, {OWN: HYDRA}, ["no mpiexec of pals found", f"{OWN} is mpich"]),
        ("pals", {}, {OWN: HYDRA, "mpiexec": OPEN_MPI_4}, [f"{OWN} is mpich; mpiexec is openmpi"]),
    ],
)
def test_where_no_launcher_is_found_the_user_is_told_what_was_seen(wanted, environ, present, said, tmp_path):
    with pytest.raises(UserError) as raised:
        found(tmp_path, wanted, environ, present)
    assert all(part in str(raised.value) for part in said), raised.value
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(not (ROOT / OWN).exists(), reason="the environment has no mpiexec of its own; a site's MPI is used")
def test_the_environments_own_mpiexec_is_asked_for_its_version():
    assert find("mpich", {}, ROOT, path_of=lambda name: None) == ("mpich", OWN)

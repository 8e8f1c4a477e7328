"""The command that each launcher gets, and which launcher is found where."""

import shlex

import pytest

from common.config import Settings, parse
from common.errors import UserError
from common.records import ROOT
from launch.detect import choose, find, first_node_of, identify, variables_for
from launch.launchers import LAUNCHERS, WITHOUT_MPI, Launcher, Start, command, hosts_in, needs_mpi
from launch.plan import Job

START = Start(
    executable="the/launcher",
    num_ranks=6,
    ranks_per_node=2,
    threads=3,
    program=(".venv/bin/python", "-m", "frameworks.ddp", "--epochs", "2"),
    variables={"OMP_NUM_THREADS": "3", "A": "with space"},
    hosts="hosts",
    carrier=("mpich", "mpiexec"),
    first_node="x1.hsn",
)
ON_ONE_NODE = START._replace(ranks_per_node=6, hosts=None, carrier=None, first_node=None)
PROGRAM = ".venv/bin/python -m frameworks.ddp --epochs 2"

COMMANDS = {
    "mpich": (
        "the/launcher -n 6 -ppn 2 -bind-to none -f hosts -genv OMP_NUM_THREADS 3 -genv A |with space|",
        "the/launcher -n 6 -ppn 6 -bind-to none -genv OMP_NUM_THREADS 3 -genv A |with space|",
    ),
    "intel": (
        "the/launcher -n 6 -ppn 2 -genv I_MPI_PIN 0 -f hosts -genv OMP_NUM_THREADS 3 -genv A |with space|",
        "the/launcher -n 6 -ppn 6 -genv I_MPI_PIN 0 -genv OMP_NUM_THREADS 3 -genv A |with space|",
    ),
    "openmpi": (
        "the/launcher -n 6 --map-by ppr:2:node:OVERSUBSCRIBE --bind-to none --hostfile hosts -x OMP_NUM_THREADS=3 -x |A=with space|",
        "the/launcher -n 6 --map-by ppr:6:node:OVERSUBSCRIBE --bind-to none -x OMP_NUM_THREADS=3 -x |A=with space|",
    ),
    "pals": (
        "the/launcher -n 6 --ppn 2 --depth 3 --cpu-bind depth --hostfile hosts --env OMP_NUM_THREADS=3 --env |A=with space|",
        "the/launcher -n 6 --ppn 6 --depth 3 --cpu-bind depth --env OMP_NUM_THREADS=3 --env |A=with space|",
    ),
    "aprun": (
        "the/launcher -n 6 -N 2 --cc depth -d 3 -L x1,x2,x3 -e OMP_NUM_THREADS=3 -e |A=with space|",
        "the/launcher -n 6 -N 6 --cc depth -d 3 -e OMP_NUM_THREADS=3 -e |A=with space|",
    ),
    "srun": (
        "the/launcher --nodes=3 --ntasks=6 --ntasks-per-node=2 --cpus-per-task=3 --cpu-bind=cores --mpi=pmi2 --kill-on-bad-exit=1 "
        "--nodefile hosts",
        "the/launcher --nodes=1 --ntasks=6 --ntasks-per-node=6 --cpus-per-task=3 --cpu-bind=cores --mpi=pmi2 --kill-on-bad-exit=1",
    ),
    "torchrun": (
        "mpiexec -n 3 -ppn 1 -bind-to none -f hosts -genv OMP_NUM_THREADS 3 -genv A |with space| "
        "the/launcher --nproc-per-node=2 --nnodes=3 --rdzv-backend=c10d --rdzv-endpoint=x1.hsn:29400 -m frameworks.ddp --epochs 2",
        "the/launcher --nproc-per-node=6 --standalone -m frameworks.ddp --epochs 2",
    ),
}


def words(text):
    """The arguments in a text: those in it that have spaces stand between bars."""
    return [part for number, piece in enumerate(text.split("|")) for part in ([piece] if number % 2 else piece.split())]


def test_these_tests_know_every_launcher():
    assert COMMANDS.keys() == LAUNCHERS.keys()
    assert LAUNCHERS.keys() >= WITHOUT_MPI


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_of_a_launcher(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text("x1\nx2\nx3\n")
    for start, expected in zip((START, ON_ONE_NODE), COMMANDS[name], strict=True):
        program = [] if name == "torchrun" else PROGRAM.split()
        assert LAUNCHERS[name](start) == [*words(expected), *program]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"first_node": None}, "--hosts FILE"),
        ({"carrier": None}, "--hosts FILE"),
        ({"num_ranks": 5}, "5 are no multiple of 2"),
    ],
)
def test_torchrun_says_what_it_needs_for_several_nodes(changes, said):
    with pytest.raises(UserError, match=said):
        LAUNCHERS["torchrun"](START._replace(**changes))


@pytest.mark.parametrize(("num_ranks", "ranks_per_node", "nodes"), [(1, 1, 1), (4, 4, 1), (4, 2, 2), (5, 4, 2), (3, 1, 3)])
def test_nodes_are_as_many_as_the_ranks_need(num_ranks, ranks_per_node, nodes):
    assert START._replace(num_ranks=num_ranks, ranks_per_node=ranks_per_node).num_nodes == nodes


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x1\nx2\n", ["x1", "x2"]),
        ("# ours\n\nx1:4  # with slots\nx2 slots=4\nx1\n", ["x1", "x2"]),
    ],
)
def test_hosts_are_the_names_in_a_file_each_once(text, names, tmp_path):
    (tmp_path / "hosts").write_text(text)
    assert hosts_in(tmp_path / "hosts") == names


@pytest.mark.parametrize(("text", "said"), [(None, "No such file"), ("# none\n", "names no node")])
def test_a_file_of_hosts_that_names_none_is_refused(text, said, tmp_path):
    if text is not None:
        (tmp_path / "hosts").write_text(text)
    with pytest.raises(UserError, match=said):
        hosts_in(tmp_path / "hosts")


def test_the_command_of_a_job_says_all_of_its_settings():
    job = Job("horovod_torch", 4, 2, Settings(threads=3, data_dir="/data/my mnist", run_id="it"))
    argv, variables = command(job, Launcher("pals", "mpiexec", {"GLOO_SOCKET_IFNAME": "hsn0"}))
    assert shlex.join(argv[:16]) == (
        "mpiexec -n 4 --ppn 2 --depth 3 --cpu-bind depth --env OMP_NUM_THREADS=3 --env GLOO_SOCKET_IFNAME=hsn0 "
        ".venv/bin/python -m frameworks.horovod_torch"
    )
    assert str(parse(Settings, "it", "", argv[16:]).data_dir) == "/data/my mnist"
    assert parse(Settings, "it", "", argv[16:]).run_id == "it"
    assert variables == {"OMP_NUM_THREADS": "3", "GLOO_SOCKET_IFNAME": "hsn0"}


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
ALPS = "aprun (ALPS) 6.6.67\n"
SHIM = "Tandem's aprun: it starts the launcher at hand\n"
SRUN = "slurm-wlm 22.05.8\n"
UNKNOWN = "mpiexec: unrecognized option --version\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (HYDRA, "mpich"),
        (OPEN_MPI_4, "openmpi"),
        (OPEN_MPI_5, "openmpi"),
        (PALS, "pals"),
        (ALPS, "aprun"),
        (SHIM, None),
        (SRUN, "srun"),
        (UNKNOWN, None),
        ("", None),
    ],
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
        (None, {}, {OWN: HYDRA, "mpiexec": PALS, "srun": SRUN}, ("mpich", OWN)),
        ("mpich", {}, {OWN: HYDRA, "mpiexec": HYDRA}, ("mpich", OWN)),
        ("openmpi", {}, {OWN: HYDRA, "mpiexec": OPEN_MPI_5}, ("openmpi", "mpiexec")),
        # In an allocation the site's comes first: it alone knows the nodes.
        (None, PBS, {OWN: HYDRA, "mpiexec": PALS}, ("pals", "mpiexec")),
        (None, PBS, {OWN: HYDRA}, ("mpich", OWN)),
        (None, PBS, {OWN: HYDRA, "mpiexec": UNKNOWN}, ("mpich", OWN)),
        ("mpich", PBS, {OWN: HYDRA, "mpiexec": PALS}, ("mpich", OWN)),
        (None, SLURM, {OWN: HYDRA, "mpiexec": OPEN_MPI_5, "srun": SRUN}, ("srun", "srun")),
        (None, SLURM, {OWN: HYDRA}, ("mpich", OWN)),
        ("mpich", SLURM, {OWN: HYDRA, "srun": SRUN}, ("mpich", OWN)),
        ("srun", {}, {"srun": SRUN}, ("srun", "srun")),
        ("torchrun", {}, {".venv/bin/torchrun": None, "torchrun": None}, ("torchrun", ".venv/bin/torchrun")),
        ("torchrun", {}, {"torchrun": None}, ("torchrun", "torchrun")),
        ("aprun", {}, {OWN: HYDRA, "aprun": ALPS}, ("aprun", "aprun")),
        (None, {"COBALT_JOBID": "7"}, {OWN: HYDRA, "aprun": ALPS}, ("aprun", "aprun")),
        (None, PBS, {OWN: HYDRA, "aprun": SHIM}, ("mpich", OWN)),
        (None, PBS, {"mpiexec": PALS, "aprun": ALPS}, ("pals", "mpiexec")),
        # What is called srun and is none.
        (None, SLURM, {OWN: HYDRA, "srun": UNKNOWN}, ("mpich", OWN)),
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
        ("qrun", {}, {OWN: HYDRA}, ["no launcher 'qrun'", *LAUNCHERS]),
        ("aprun", {}, {OWN: HYDRA}, ["no aprun found"]),
        ("aprun", {}, {OWN: HYDRA, "aprun": SHIM}, ["no aprun found", "aprun is of an unknown kind"]),
        ("srun", {}, {OWN: HYDRA}, ["no srun found"]),
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


@pytest.mark.parametrize(
    ("text", "suffix", "node"), [("x1.site\nx2\n", "i", "x1i"), ("x1.site\n", "", "x1.site"), ("10.0.0.1\n10.0.0.2\n", "", "10.0.0.1")]
)
def test_the_first_node_is_known_by_its_fast_interface(text, suffix, node, tmp_path):
    listed = tmp_path / "nodes"
    listed.write_text(text)
    assert first_node_of(str(listed), {}, suffix) == first_node_of(None, {"PBS_NODEFILE": str(listed)}, suffix) == node


def test_where_nobody_names_the_nodes_there_is_no_first():
    assert first_node_of(None, {}, "i") is None


def test_a_dry_run_may_name_a_launcher_that_is_not_here(tmp_path):
    assert choose("pals", None, {}, "", {}, tmp_path, pretend=True) == Launcher("pals", "mpiexec")
    with pytest.raises(UserError):
        choose("pals", None, {}, "", {}, tmp_path)


def test_only_the_environments_own_mpich_is_told_its_network_and_only_under_slurm(tmp_path):
    assert variables_for("srun", tmp_path) == {}
    (tmp_path / OWN).parent.mkdir(parents=True)
    (tmp_path / OWN).touch()
    assert variables_for("srun", tmp_path) == {"MPIR_CVAR_CH4_NETMOD": "ofi"}
    assert variables_for("mpich", tmp_path) == {}


@pytest.mark.parametrize("given", [{"A": "b"}, {"MPIR_CVAR_CH4_NETMOD": "ucx"}])
def test_a_machines_own_variables_stand_above_what_a_launcher_needs(given):
    assert choose("srun", None, given, "", {}, ROOT, pretend=True).variables == variables_for("srun", ROOT) | given

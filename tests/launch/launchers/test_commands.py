"""The command for each launcher, and the detection of the launcher."""

import shlex

import pytest

from common.command_line import parse
from common.config import Settings
from common.errors import UserError
from common.record.records import ROOT
from launch.launchers.commands import LAUNCHERS, Launcher, Start, command, hosts_in, on_a_node
from launch.launchers.detect import choose, find, first_node_of, identify, variables_for
from launch.run.plan import Job
from tests.support.mistakes import refused

START = Start(
    executable="the/launcher",
    num_ranks=6,
    ranks_per_node=2,
    cores_per_rank=3,
    program=(".venv/bin/python", "-m", "frameworks.ddp", "--epochs", "2"),
    variables={"OMP_NUM_THREADS": "3", "A": "with space"},
    hosts="hosts",
    agent_launcher=("mpich", "mpiexec"),
    first_node="x1.hsn",
)
ON_ONE_NODE = START._replace(ranks_per_node=6, hosts=None, agent_launcher=None, first_node=None)
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
        "--overlap --nodefile hosts",
        "the/launcher --nodes=1 --ntasks=6 --ntasks-per-node=6 --cpus-per-task=3 --cpu-bind=cores --mpi=pmi2 --kill-on-bad-exit=1 "
        "--overlap",
    ),
    "torchrun": (
        "mpiexec -n 3 -ppn 1 -bind-to none -f hosts -genv OMP_NUM_THREADS 3 -genv A |with space| "
        "the/launcher --nproc-per-node=2 --nnodes=3 --rdzv-backend=c10d --rdzv-endpoint=x1.hsn:29400 -m frameworks.ddp --epochs 2",
        "the/launcher --nproc-per-node=6 --standalone -m frameworks.ddp --epochs 2",
    ),
}


def words(text):
    """The arguments in a text; those with spaces are enclosed in bars."""
    return [part for number, piece in enumerate(text.split("|")) for part in ([piece] if number % 2 else piece.split())]


def test_these_tests_know_every_launcher():
    assert COMMANDS.keys() == LAUNCHERS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_of_a_launcher(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text("x1\nx2\nx3\n")
    for start, expected in zip((START, ON_ONE_NODE), COMMANDS[name], strict=True):
        program = [] if name == "torchrun" else PROGRAM.split()
        assert LAUNCHERS[name].argv(start) == [*words(expected), *program]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first_node": None}, "--hosts FILE"),
        ({"agent_launcher": None}, "--hosts FILE"),
        ({"num_ranks": 5}, "5 is not a multiple of 2"),
    ],
)
def test_torchrun_on_several_nodes_requires_a_host_file(changes, message):
    with pytest.raises(UserError, match=message):
        LAUNCHERS["torchrun"].argv(START._replace(**changes))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_program_runs_once_on_a_node_as_a_rank_of_a_job_does(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text("x1\nx2\nx3\n")
    agent = ("mpich", "mpiexec") if name == "torchrun" else None
    launcher = Launcher(name, START.executable, START.variables, START.hosts, agent)
    through, executable = agent or (name, START.executable)
    once = START._replace(executable=executable, num_ranks=1, ranks_per_node=1, program=("the", "program"))
    job = Job("ddp", 6, 2, Settings(threads=1, cores_per_rank=START.cores_per_rank))
    assert on_a_node(("the", "program"), job, launcher) == (LAUNCHERS[through].argv(once), START.variables)


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


@pytest.mark.parametrize(("text", "message"), [(None, "No such file"), ("# none\n", "lists no nodes")])
def test_a_file_of_hosts_that_names_none_is_refused(text, message, tmp_path):
    if text is not None:
        (tmp_path / "hosts").write_text(text)
    with pytest.raises(UserError, match=message):
        hosts_in(tmp_path / "hosts")


def test_the_command_of_a_job_has_all_of_its_settings():
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
    ("launcher", "words"), [("pals", "--depth 5 --cpu-bind depth"), ("aprun", "--cc depth -d 5"), ("srun", "--cpus-per-task=5")]
)
def test_a_rank_is_bound_to_the_cores_that_it_is_given_beside_its_threads(launcher, words):
    job = Job("ddp", 4, 2, Settings(threads=3, cores_per_rank=5))
    argv, variables = command(job, Launcher(launcher, launcher))
    assert f" {words} " in shlex.join(argv)
    assert variables["OMP_NUM_THREADS"] == "3"


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
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.1 Build 20201112 (id: b9c9d2fc5)\nCopyright 2003-2020, Intel Corporation.\n"
PALS = "mpiexec (PALS) 1.2.12\n"
ALPS = "aprun (ALPS) 6.6.67\n"
SHIM = "Tandem's aprun: starts the detected launcher\n"
SRUN = "slurm-wlm 22.05.8\n"
UNKNOWN = "mpiexec: unrecognized option --version\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (HYDRA, "mpich"),
        (OPEN_MPI_4, "openmpi"),
        (OPEN_MPI_5, "openmpi"),
        (INTEL, "intel"),
        (PALS, "pals"),
        (ALPS, "aprun"),
        (SHIM, None),
        (SRUN, "srun"),
        (UNKNOWN, None),
        ("", None),
    ],
)
def test_a_launcher_is_identified_by_its_version_output(text, name):
    assert identify(text) == name


OWN = ".venv/bin/mpiexec"
SLURM, PBS = {"SLURM_JOB_ID": "17"}, {"PBS_JOBID": "17.polaris"}


def detected(root, launcher, environ, present):
    """The result of find() with these programs, {executable: version output}, in the environment or in PATH."""
    for executable in present:
        if "/" in executable:
            (root / executable).parent.mkdir(parents=True, exist_ok=True)
            (root / executable).touch()
    return find(launcher, environ, root, lambda name: f"/usr/bin/{name}" if name in present else None, present.get)


@pytest.mark.parametrize(
    ("launcher", "environ", "present", "expected"),
    [
        (None, {}, {OWN: HYDRA}, ("mpich", OWN)),
        (None, {}, {"mpiexec": OPEN_MPI_4}, ("openmpi", "mpiexec")),
        # Outside an allocation the environment's own launcher is preferred.
        (None, {}, {OWN: HYDRA, "mpiexec": PALS, "srun": SRUN}, ("mpich", OWN)),
        ("mpich", {}, {OWN: HYDRA, "mpiexec": HYDRA}, ("mpich", OWN)),
        ("openmpi", {}, {OWN: HYDRA, "mpiexec": OPEN_MPI_5}, ("openmpi", "mpiexec")),
        # In an allocation the site's launcher is preferred, because only it knows the nodes.
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
        # A program named srun that is not Slurm's.
        (None, SLURM, {OWN: HYDRA, "srun": UNKNOWN}, ("mpich", OWN)),
    ],
)
def test_the_launcher_is_detected(launcher, environ, present, expected, tmp_path):
    assert detected(tmp_path, launcher, environ, present) == expected


def test_in_an_allocation_a_launcher_of_the_site_is_preferred_to_our_own_of_its_kind(tmp_path):
    assert detected(tmp_path, "mpich", PBS, {OWN: HYDRA, "mpiexec": HYDRA}) == ("mpich", "mpiexec")


@pytest.mark.parametrize(
    ("launcher", "environ", "present", "parts"),
    [
        (None, {}, {}, ["no mpiexec found", "launch/setup.sh", "--launcher"]),
        (None, SLURM, {}, ["no mpiexec found"]),
        (None, PBS, {}, ["no mpiexec found"]),
        (None, {}, {"mpiexec": UNKNOWN}, ["no mpiexec found", "mpiexec is unknown"]),
        ("qrun", {}, {OWN: HYDRA}, ["no launcher 'qrun'", *LAUNCHERS]),
        ("aprun", {}, {OWN: HYDRA}, ["no aprun found"]),
        ("aprun", {}, {OWN: HYDRA, "aprun": SHIM}, ["no aprun found", "aprun is unknown"]),
        ("srun", {}, {OWN: HYDRA}, ["no srun found"]),
        ("torchrun", {}, {OWN: HYDRA}, ["--launcher torchrun", "no torchrun found in PATH"]),
        ("mpich", {}, {}, ["no mpiexec of mpich found"]),
        ("pals", {}, {OWN: HYDRA}, ["no mpiexec of pals found", f"{OWN} is mpich"]),
        ("pals", {}, {OWN: HYDRA, "mpiexec": OPEN_MPI_4}, [f"{OWN} is mpich; mpiexec is openmpi"]),
    ],
)
def test_the_error_for_a_missing_launcher_lists_the_rejected_ones(launcher, environ, present, parts, tmp_path):
    with refused(*parts):
        detected(tmp_path, launcher, environ, present)


@pytest.mark.skipif(not (ROOT / OWN).exists(), reason="the environment has no mpiexec of its own; a site's MPI is used")
def test_the_environments_own_mpiexec_is_asked_for_its_version():
    assert find("mpich", {}, ROOT, path_of=lambda name: None) == ("mpich", OWN)


@pytest.mark.parametrize(
    ("text", "suffix", "node"), [("x1.site\nx2\n", "i", "x1i"), ("x1.site\n", "", "x1.site"), ("10.0.0.1\n10.0.0.2\n", "", "10.0.0.1")]
)
def test_the_first_node_is_named_by_its_fast_interface(text, suffix, node, tmp_path):
    listed = tmp_path / "nodes"
    listed.write_text(text)
    assert first_node_of(str(listed), {}, suffix) == first_node_of(None, {"PBS_NODEFILE": str(listed)}, suffix) == node


def test_without_a_list_of_nodes_there_is_no_first_node():
    assert first_node_of(None, {}, "i") is None


def test_a_dry_run_may_name_a_launcher_that_is_not_here(tmp_path):
    assert choose("pals", None, {}, "", {}, tmp_path, pretend=True) == Launcher("pals", "mpiexec")
    with pytest.raises(UserError):
        choose("pals", None, {}, "", {}, tmp_path)


def test_the_netmod_is_set_only_for_the_environments_mpich_under_slurm(tmp_path):
    assert variables_for("srun", tmp_path) == {}
    (tmp_path / OWN).parent.mkdir(parents=True)
    (tmp_path / OWN).touch()
    assert variables_for("srun", tmp_path) == {"MPIR_CVAR_CH4_NETMOD": "ofi"}
    assert variables_for("mpich", tmp_path) == {}


@pytest.mark.parametrize("machine_variables", [{"A": "b"}, {"MPIR_CVAR_CH4_NETMOD": "ucx"}])
def test_a_machines_variables_override_those_of_the_launcher(machine_variables):
    assert choose("srun", None, machine_variables, "", {}, ROOT, pretend=True).variables == variables_for("srun", ROOT) | machine_variables

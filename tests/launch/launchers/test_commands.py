"""The command for each launcher, and the detection of the launcher."""

import shlex

import pytest

from common.command_line import parse
from common.config import Settings
from common.errors import UserError
from launch.launchers import detect
from launch.launchers.commands import ALLOCATIONS, LAUNCHERS, Launcher, Start
from launch.launchers.detect import choose, find
from launch.launchers.hosts import first_node_of
from launch.launchers.machine_files import Machine
from launch.run.plan import Job
from launch.run.runner import start_of
from tests.support.mistakes import refused

TORCHRUN = Launcher("torchrun", "the/launcher", {}, "hosts", ("mpich", "mpiexec"), "x1.hsn")
START = Start(
    TORCHRUN, num_ranks=6, ranks_per_node=2, cores_per_rank=3, program=(".venv/bin/python", "-m", "frameworks.ddp", "--epochs", "2"),
    variables={"OMP_NUM_THREADS": "3", "A": "with space"},
)  # fmt: skip
# On three nodes with a host file; tests/launch/test_launch_docs.py has the commands without one.
COMMANDS = {
    "mpich": "the/launcher -n 6 -ppn 2 -bind-to none -hosts x1,x2,x3 -genv OMP_NUM_THREADS 3 -genv A |with space|",
    "intel": "the/launcher -n 6 -ppn 2 -genv I_MPI_PIN 0 -hosts x1,x2,x3 -genv OMP_NUM_THREADS 3 -genv A |with space|",
    "openmpi": "the/launcher -n 6 --map-by ppr:2:node:OVERSUBSCRIBE --bind-to none --host x1,x2,x3 -x OMP_NUM_THREADS=3 -x |A=with space|",
    "pals": "the/launcher -n 6 --ppn 2 --depth 3 --cpu-bind depth --hostfile hosts --env OMP_NUM_THREADS=3 --env |A=with space|",
    "aprun": "the/launcher -n 6 -N 2 --cc depth -d 3 -L x1,x2,x3 -e OMP_NUM_THREADS=3 -e |A=with space|",
    "srun": "the/launcher --nodes=3 --ntasks=6 --ntasks-per-node=2 --cpus-per-task=3 --threads-per-core=1 --distribution=block:block "
    "--cpu-bind=threads --mpi=pmi2 --kill-on-bad-exit=1 --overlap --export=ALL --nodelist x1,x1,x2,x2,x3,x3 --distribution=arbitrary",
    "torchrun": "mpiexec -n 3 -ppn 1 -bind-to none -hosts x1,x2,x3 -genv OMP_NUM_THREADS 3 -genv A |with space| "
    '--further |of mpich| sh -c |export PET_NODE_RANK=$PMI_RANK; exec "$@"| sh '
    "the/launcher --nproc-per-node=2 --nnodes=3 --master-addr=x1.hsn --master-port=29400",
}


def words(text):
    """The arguments in a text; those with spaces are enclosed in bars."""
    return [part for number, piece in enumerate(text.split("|")) for part in ([piece] if number % 2 else piece.split())]


@pytest.mark.parametrize("name", LAUNCHERS)
def test_the_command_of_a_launcher(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text("x1\nx2\nx3\n")
    program = START.program[1:] if name == "torchrun" else START.program
    launcher = TORCHRUN._replace(name=name, mpi="pmi2", arguments={name: ("--further", f"of {name}") for name in LAUNCHERS})
    assert START._replace(launcher=launcher).argv() == [*words(COMMANDS[name]), "--further", f"of {name}", *program]


@pytest.mark.parametrize(
    ("name", "agent_launcher", "passed"),
    [
        ("mpich", None, False),
        ("srun", None, False),
        ("openmpi", None, True),
        ("torchrun", ("openmpi", "mpiexec"), True),
    ],
)
def test_a_launcher_that_passes_on_no_environment_is_given_each_variable(name, agent_launcher, passed):
    start = START._replace(launcher=Launcher(name, "mpiexec", agent_launcher=agent_launcher, first_node="x1"))
    assert start.with_passed({"B": "c"}).variables == START.variables | ({"B": "c"} if passed else {})


def test_torchrun_starts_the_ranks_of_one_node_itself_and_agents_number_themselves_where_the_order_of_hosts_is_another(
    tmp_path, monkeypatch
):
    expected = "the/launcher --nproc-per-node=6 --standalone --max-restarts=1 -m frameworks.ddp --epochs 2"
    launcher = Launcher("torchrun", "the/launcher", arguments={"torchrun": ("--max-restarts=1",), "srun": ("--exclusive",)})
    assert START._replace(launcher=launcher, ranks_per_node=6).argv() == expected.split()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text("x1\nx2\nx3\n")
    launcher = TORCHRUN._replace(agent_launcher=("openmpi", "mpiexec"))
    agent = "the/launcher --nproc-per-node=2 --nnodes=3 --rdzv-backend=c10d --rdzv-endpoint=x1.hsn:29400 -m frameworks.ddp --epochs 2"
    assert " ".join(START._replace(launcher=launcher).argv()).endswith(f" A=with space {agent}")


CONTAINER = ("podman", "run", "image", "python")


NUMBERED = "mpiexec -n 2 -ppn 1 -bind-to none sh -c 'export PET_NODE_RANK=$PMI_RANK; exec \"$@\"' sh "


@pytest.mark.parametrize(("num_ranks", "before"), [(1, ""), (2, NUMBERED)])
def test_torchrun_is_that_of_a_sites_python(num_ranks, before, monkeypatch):
    monkeypatch.setenv("HYDRA_HOST_FILE", "nodes")
    launcher = Launcher("torchrun", "podman", agent_launcher=("mpich", "mpiexec"), first_node="x1", python=CONTAINER)
    program = (*CONTAINER, "-m", "frameworks.ddp")
    argv = Start(launcher, num_ranks, 1, 1, program, {}).argv()
    assert shlex.join(argv).startswith(f"{before}podman run image python -m torch.distributed.run --nproc-per-node=1 --")
    assert argv[-2:] == ["-m", "frameworks.ddp"]
    assert (argv.count("podman"), argv.count("image")) == (1, 1)


@pytest.mark.parametrize(("text", "name"), [("True", "mpich"), ("False", "torchrun")])
def test_without_mpi4py_the_launcher_is_torchrun(text, name, install):
    install({OWN: HYDRA}, {})
    python = ("bash", "-c", f"echo mpi4py: {text}")
    assert choose(machine=Machine(python=python))[:2] == (name, "bash" if name == "torchrun" else OWN)
    assert choose("mpich", machine=Machine(python=python)).name == "mpich"


@pytest.mark.parametrize(
    ("python", "message"),
    [
        (["no-such-shifter", "python"], "no-such-shifter, of the machine file's python, could not be started"),
        (["bash", "-c", "echo no such image >&2; exit 125"], "started: no such image"),
    ],
)
def test_a_python_that_does_not_start_is_named(python, message, install):
    install({OWN: HYDRA}, {})
    with refused(message):
        choose(machine=Machine(python=python))


def test_a_dry_run_may_name_a_launcher_and_a_container_that_are_not_here(install):
    install({OWN: HYDRA}, {})
    assert choose(machine=Machine(python=["no-such-shifter", "python"]), pretend=True)[:2] == ("mpich", OWN)
    assert choose("pals", pretend=True) == Launcher("pals", "mpiexec", {}, arguments={"pals": ()})
    with pytest.raises(UserError):
        choose("pals")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"launcher": TORCHRUN._replace(first_node=None)}, "list them with --hosts FILE"),
        ({"launcher": TORCHRUN._replace(agent_launcher=None)}, "per node; no MPI launcher or srun"),
        ({"num_ranks": 5}, "5 is not a multiple of 2"),
    ],
)
def test_torchrun_on_several_nodes_requires_their_names_and_what_starts_agents_there(changes, message):
    with pytest.raises(UserError, match=message):
        START._replace(**changes).argv()


def test_a_host_file_with_fewer_nodes_than_the_ranks_need_and_any_where_the_launcher_takes_none_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text("x1\nx2\n")
    monkeypatch.setitem(LAUNCHERS, "lsf", LAUNCHERS["mpich"]._replace(hosts_option=""))
    with refused("--hosts is hosts, and lsf has no option for it; choose another --launcher"):
        START._replace(launcher=TORCHRUN._replace(name="lsf")).argv()
    monkeypatch.delitem(LAUNCHERS, "lsf")
    for name in LAUNCHERS:
        with refused("hosts lists 2 of the nodes, and ", " with ", " per node need 3"):
            START._replace(launcher=TORCHRUN._replace(name=name)).argv()


def test_the_start_of_a_job_has_all_of_its_settings_and_the_cores_of_a_rank_beside_its_threads():
    job = Job("horovod_torch", 4, 2, Settings(threads=3, cores_per_rank=5, data_dir="/data/my mnist", run_id="it"))
    start = start_of(job, Launcher("pals", "mpiexec", {"GLOO_SOCKET_IFNAME": "hsn0"}))
    argv = start.argv()
    assert shlex.join(argv[:16]) == (
        "mpiexec -n 4 --ppn 2 --depth 5 --cpu-bind depth --env OMP_NUM_THREADS=3 --env GLOO_SOCKET_IFNAME=hsn0 "
        ".venv/bin/python -m frameworks.horovod_torch"
    )
    settings = parse(Settings, "it", "", argv[16:])
    assert (str(settings.data_dir), settings.run_id, settings.threads) == ("/data/my mnist", "it", 3)
    assert start.variables == {"OMP_NUM_THREADS": "3", "GLOO_SOCKET_IFNAME": "hsn0"}


HYDRA = "HYDRA build details:\n    Version:     5.0.2\n    Launchers available:     ssh rsh fork slurm ll lsf sge\n"
OPEN_MPI_4 = "mpiexec (OpenRTE) 4.1.5\n\nReport bugs to http://www.open-mpi.org/community/help/\n"
OPEN_MPI_5 = "mpiexec (Open MPI) 5.0.5\n\nReport bugs to https://www.open-mpi.org/community/help/\n"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.1 Build 20201112 (id: b9c9d2fc5)\nCopyright 2003-2020, Intel Corporation.\n"
PALS = "mpiexec (PALS) 1.2.12\n"
ALPS = "aprun (ALPS) 6.6.67\n"
OTHER = "a program of the site\n"
SRUN = "slurm-wlm 22.05.8\n"
UNKNOWN = "mpiexec: unrecognized option --version\n"


OWN = ".venv/bin/mpiexec"
SLURM, PBS = {"SLURM_JOB_ID": "17"}, {"PBS_JOBID": "17.polaris"}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A function that makes a checkout and PATH with these programs, {executable: version output}, and an environment."""
    monkeypatch.setattr(detect, "ROOT", tmp_path)
    for name in (*ALLOCATIONS, "PBS_NODEFILE", "SLURM_JOB_NODELIST", "SLURM_MPI_TYPE"):
        monkeypatch.delenv(name, raising=False)

    def install(programs, environ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        for executable in programs:
            if "/" in executable:
                (tmp_path / executable).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / executable).touch()
        monkeypatch.setattr(detect, "which", lambda name: f"/usr/bin/{name}" if name in programs else None)
        monkeypatch.setattr(detect, "output_of", lambda argv, _=None: programs.get(argv[0]) or "")

    return install


@pytest.mark.parametrize(
    ("launcher", "environ", "programs", "expected"),
    [
        (None, {}, {"mpiexec": OPEN_MPI_4}, ("openmpi", "mpiexec")),
        (None, {}, {"mpiexec": INTEL}, ("intel", "mpiexec")),
        # Outside an allocation the environment's own launcher is preferred.
        (None, {}, {OWN: HYDRA, "mpiexec": PALS, "srun": SRUN}, ("mpich", OWN)),
        ("openmpi", {}, {OWN: HYDRA, "mpiexec": OPEN_MPI_5}, ("openmpi", "mpiexec")),
        # In an allocation the site's launcher is preferred, because only it knows the nodes.
        (None, PBS, {OWN: HYDRA, "mpiexec": PALS}, ("pals", "mpiexec")),
        ("mpich", PBS, {OWN: HYDRA, "mpiexec": HYDRA}, ("mpich", "mpiexec")),
        (None, PBS, {OWN: HYDRA, "mpiexec": UNKNOWN}, ("mpich", OWN)),
        (None, SLURM, {OWN: HYDRA, "mpiexec": OPEN_MPI_5, "srun": SRUN}, ("srun", "srun")),
        (None, SLURM, {OWN: HYDRA}, ("mpich", OWN)),
        ("srun", {}, {"srun": SRUN}, ("srun", "srun")),
        ("torchrun", {}, {".venv/bin/torchrun": None, "torchrun": None}, ("torchrun", ".venv/bin/torchrun")),
        ("aprun", {}, {OWN: HYDRA, "aprun": ALPS}, ("aprun", "aprun")),
        (None, PBS, {OWN: HYDRA, "aprun": ALPS}, ("aprun", "aprun")),
        (None, PBS, {OWN: HYDRA, "aprun": OTHER}, ("mpich", OWN)),
        (None, PBS, {"mpiexec": PALS, "aprun": ALPS}, ("pals", "mpiexec")),
        # A variable that is set and empty is not set.
        (None, {"SLURM_JOB_ID": ""}, {OWN: HYDRA, "srun": SRUN}, ("mpich", OWN)),
        # A program named srun that is not Slurm's.
        (None, SLURM, {OWN: HYDRA, "srun": UNKNOWN}, ("mpich", OWN)),
    ],
)
def test_the_launcher_is_detected(launcher, environ, programs, expected, install):
    install(programs, environ)
    assert find(launcher) == expected


@pytest.mark.parametrize(
    ("launcher", "environ", "programs", "parts"),
    [
        (None, {}, {}, ["no mpiexec found", "launch/setup.sh", "--launcher"]),
        (None, PBS, {"mpiexec": UNKNOWN}, ["no mpiexec found", "mpiexec is unknown"]),
        ("aprun", {}, {OWN: HYDRA, "aprun": OTHER}, ["no aprun found", "aprun is unknown"]),
        ("torchrun", {}, {OWN: HYDRA}, ["--launcher torchrun", "no torchrun found in PATH"]),
        ("pals", {}, {OWN: HYDRA, "mpiexec": OPEN_MPI_4}, [f"no mpiexec of pals found ({OWN} is mpich; mpiexec is openmpi)"]),
    ],
)
def test_the_error_for_a_missing_launcher_lists_the_rejected_ones(launcher, environ, programs, parts, install):
    install(programs, environ)
    with refused(*parts):
        find(launcher)


@pytest.mark.parametrize(("text", "suffix", "node"), [("x1.site\nx2\n", "i", "x1i"), ("x1.site\n", "", "x1.site")])
def test_the_first_node_is_named_by_its_fast_interface(text, suffix, node, install, tmp_path):
    hosts = tmp_path / "nodes"
    hosts.write_text(text)
    install({}, {})
    assert first_node_of(str(hosts), suffix) == node
    assert first_node_of(None, suffix) is None
    install({}, {"SLURM_JOB_NODELIST": "x[1-2]", "PBS_NODEFILE": str(hosts)})
    assert first_node_of(None, suffix) == node
    # That of a job that has ended.
    install({}, {"SLURM_JOB_NODELIST": "", "PBS_NODEFILE": f"{hosts}/gone"})
    assert first_node_of(None, suffix) is None


@pytest.mark.parametrize(
    ("launcher", "programs", "machine_variables", "variables"),
    [
        ("srun", {OWN: HYDRA}, {"A": "b"}, {"MPIR_CVAR_CH4_NETMOD": "ofi", "A": "b"}),
        ("srun", {OWN: HYDRA}, {"MPIR_CVAR_CH4_NETMOD": "ucx"}, {"MPIR_CVAR_CH4_NETMOD": "ucx"}),
    ],
)
def test_the_environments_mpich_has_variables_under_slurm_and_a_machine_overrides_them(
    launcher, programs, machine_variables, variables, install
):
    install(programs, {})
    assert choose(launcher, machine=Machine(variables=machine_variables), pretend=True).variables == variables


OF_SLURM = Machine(launcher="srun", launcher_args="--account=x --comment 'two words'")
OF_SRUN = ("--account=x", "--comment", "two words")


@pytest.mark.parametrize(
    ("machine", "launcher", "arguments", "by_name"),
    [
        (OF_SLURM, None, None, {"srun": OF_SRUN}),
        (OF_SLURM, None, "", {"srun": ()}),
        # The agents' launcher has its own.
        (OF_SLURM, "torchrun", "--max-restarts 1", {"srun": OF_SRUN, "torchrun": ("--max-restarts", "1")}),
        (Machine(launcher_args="--oversubscribe"), "openmpi", None, {"openmpi": ("--oversubscribe",)}),
    ],
)
def test_further_arguments_are_those_of_the_launcher_they_were_given_for(machine, launcher, arguments, by_name, install):
    install({}, {})
    assert choose(launcher, arguments, machine, pretend=True).arguments == by_name
    with refused("""--launcher-args is "--comment 'a b": no closing quotation"""):
        choose("mpich", "--comment 'a b", pretend=True)


MPICH, CRAY = "MPICH Version: 5.0.2", "MPI VERSION : CRAY MPICH version 8.1.28"
DEBIAN = ["pmix", "none", "cray_shasta", "pmi2"]


@pytest.mark.parametrize(
    ("version", "offered", "environ", "machine", "expected"),
    [
        (MPICH, DEBIAN, {}, Machine(), "pmi2"),
        (OPEN_MPI_5, DEBIAN, {}, Machine(), "pmix"),
        (CRAY, DEBIAN, {}, Machine(), "cray_shasta"),
        (OPEN_MPI_4, ["none", "pmi2"], {}, Machine(), "pmi2"),
        (OPEN_MPI_5, [], {}, Machine(), "pmix"),
        # ParaStation's, as at JSC.
        (MPICH, ["none", "pspmi", "pspmix"], {}, Machine(), "pspmix"),
        (MPICH, ["none", "pspmi"], {}, Machine(), "pspmi"),
        (OPEN_MPI_5, ["none", "pmix_v4", "pmix_v3"], {}, Machine(), "pmix_v4"),
        (OPEN_MPI_5, ["none", "cray_shasta"], {}, Machine(), "none"),
        (MPICH, DEBIAN, {"SLURM_MPI_TYPE": "none"}, Machine(), "pmi2"),
        (MPICH, DEBIAN, {"SLURM_MPI_TYPE": "pspmi"}, Machine(), "pspmi"),
        (MPICH, DEBIAN, {"SLURM_MPI_TYPE": "pspmi"}, Machine(mpi="pmix"), "pmix"),
    ],
)
def test_srun_joins_the_ranks_by_what_it_offers_and_their_mpi_speaks_unless_the_user_says_how(
    version, offered, environ, machine, expected, install, monkeypatch
):
    install({".venv/bin/python": version, "srun": SRUN}, environ)
    monkeypatch.setattr(detect.slurm, "mpi_types", lambda: offered)
    assert choose("srun", machine=machine).mpi == expected
    assert choose("torchrun", machine=machine, pretend=True).mpi == "none"

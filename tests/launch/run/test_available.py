"""Which backends can run on which device, asked where the ranks will run."""

import json

import pytest

from common.config import Settings
from common.errors import UserError
from launch.launchers.commands import ALLOCATIONS, Launcher
from launch.run import available, processes
from launch.run.node import MARKER
from launch.run.plan import Job
from tests.support.mistakes import refused
from tests.support.running import matrix, records_in, with_backends

ABLE, NO_CUDA, NO_GPU = ({"cpu": None, "cuda": reason} for reason in (None, "this library has no CUDA", "it finds no GPU"))
BROKEN = {"error": "No module named 'it'"}
NO_MPI = "it needs MPI, which torchrun does not provide; use an MPI launcher"


def test_a_gpu_that_no_backend_can_use_is_refused_with_each_reason_once():
    with pytest.raises(
        UserError, match=r"^--device cuda, but no backend can use a GPU: this library has no CUDA, it finds no GPU; .*--light"
    ):
        available.common_device("cuda", {"a": NO_CUDA, "b": BROKEN, "c": NO_GPU, "d": NO_CUDA})


ON_ONE_NODE, ON_TWO_NODES = ([Job("ddp", 2, ranks_per_node, Settings())] for ranks_per_node in (2, 1))


@pytest.mark.parametrize(
    ("launcher", "jobs", "variables", "elsewhere"),
    [
        (Launcher("mpich", "mpiexec"), ON_ONE_NODE, {}, False),
        (Launcher("mpich", "mpiexec", hosts="nodes"), ON_ONE_NODE, {}, True),
        (Launcher("mpich", "mpiexec"), ON_ONE_NODE, {"PBS_JOBID": "7"}, True),
        (Launcher("srun", "srun"), ON_ONE_NODE, {}, True),
        # torchrun starts the ranks of one node itself.
        (Launcher("torchrun", "torchrun"), ON_ONE_NODE, {"SLURM_JOB_ID": "7"}, False),
        (Launcher("torchrun", "torchrun"), ON_TWO_NODES, {}, True),
    ],
)
def test_ranks_may_run_on_other_nodes(launcher, jobs, variables, elsewhere, around):
    around(variables)
    assert available.runs_elsewhere(jobs, launcher) == elsewhere


@pytest.fixture
def around(monkeypatch):
    """A function that sets these variables of an allocation, and no others."""
    for name in ALLOCATIONS:
        monkeypatch.delenv(name, raising=False)
    return lambda variables: [monkeypatch.setenv(name, value) for name, value in variables.items()]


@pytest.fixture
def answering(around, monkeypatch):
    """A function that makes the backends answer so, and returns whether each question went through the launcher."""
    through = []

    def make(**answers):
        def ask(names, job, launcher, through_launcher):
            through.append(through_launcher)
            return {name: answers[name] for name in names}

        monkeypatch.setattr(available, "answers_of", ask)
        return through

    return make


def asked(jobs, launcher):
    return available.runnable_by(available.ask_for(jobs, launcher), jobs)


def jobs_of(*names, **settings):
    return [Job(name, 2, 2, Settings(**settings)) for name in names]


LOCAL, SRUN, TORCHRUN = Launcher("mpich", "mpiexec"), Launcher("srun", "true"), Launcher("torchrun", "torchrun")


@pytest.mark.parametrize(
    ("device", "launcher", "runnable", "skipped"),
    [
        ("auto", LOCAL, [("ddp", "cuda")] * 2, {"horovod_tf": NO_CUDA["cuda"], "horovod_torch": BROKEN["error"]}),
        ("cuda", LOCAL, [("ddp", "cuda")] * 2, {"horovod_tf": NO_CUDA["cuda"], "horovod_torch": BROKEN["error"]}),
        ("cpu", LOCAL, [("ddp", "cpu"), ("horovod_tf", "cpu"), ("ddp", "cpu")], {"horovod_torch": BROKEN["error"]}),
        ("auto", TORCHRUN, [("ddp", "cuda")] * 2, dict.fromkeys(("horovod_tf", "horovod_torch"), NO_MPI)),
    ],
)
def test_all_jobs_have_the_device_and_a_backend_that_lacks_it_or_mpi_is_left_out_with_the_reason(
    device, launcher, runnable, skipped, answering
):
    answering(ddp=ABLE, horovod_tf=NO_CUDA, horovod_torch=BROKEN)
    jobs, reasons = asked(jobs_of("ddp", "horovod_tf", "horovod_torch", "ddp", device=device), launcher)
    assert [(job.backend, job.settings.device) for job in jobs] == runnable
    assert reasons == skipped


@pytest.mark.parametrize(
    ("device", "num_gpus", "sizes", "skipped"),
    [
        ("auto", 1, [(1, 1)], {"size 2": "2 ranks on a node with 1 GPU;", "size 4": "2 ranks on a node with 1 GPU;"}),
        ("cuda", 2, [(1, 1), (2, 2), (4, 2)], {"size 4": "4 ranks on a node with 2 GPUs;"}),
        # A launcher has selected the GPU of each rank.
        ("cuda", None, [(1, 1), (2, 2), (4, 4), (4, 2)], {}),
        ("cpu", 1, [(1, 1), (2, 2), (4, 4), (4, 2)], {}),
    ],
)
def test_sizes_with_more_ranks_on_a_node_than_gpus_are_left_out(device, num_gpus, sizes, skipped, answering):
    answering(ddp=ABLE | {"num_gpus": num_gpus})
    jobs = [Job("ddp", *size, Settings(device=device)) for size in ((1, 1), (2, 2), (4, 4), (4, 2))]
    runnable, reasons = asked(jobs, LOCAL)
    assert [job[1:3] for job in runnable] == sizes
    assert reasons.keys() == skipped.keys()
    assert all(reasons[name].startswith(text) for name, text in skipped.items())


@pytest.mark.parametrize(("device", "error"), [("cuda", "ModuleNotFoundError: x"), ("auto", "broken")])
def test_where_no_backend_can_run_each_is_skipped_with_its_reason(device, error, answering, capsys):
    answering(ddp={"error": error})
    with refused("none of these backends can run here"):
        available.runnable(jobs_of("ddp", device=device), LOCAL)
    assert capsys.readouterr().err.endswith(f"skipping ddp: {error}\n")


@pytest.mark.parametrize(
    ("executable", "message"),
    [("no-such-launcher", "^no-such-launcher could not be started: "), ("false", "^false could not run the check of the backends: ")],
)
def test_a_launcher_that_starts_nothing_is_an_error_in_one_line(executable, message, tmp_path):
    job = Job("ddp", 2, 1, Settings(results=tmp_path, machine="here"))
    with pytest.raises(UserError, match=message):
        available.answers_of(["ddp"], job, Launcher("srun", executable), through_launcher=True)


def test_a_backend_is_asked_once_with_the_precision_and_a_transport_that_a_variant_chooses_is_for_cpus(monkeypatch):
    names, commands, marks = ["ddp", "ddp@mpi", "horovod_torch@gloo", "deepspeed_zero@3"], [], []
    answers = {"ddp": ABLE, "horovod_torch": ABLE, "deepspeed_zero": ABLE | {"precision": {"cuda": "not here"}}}

    def run(argv, variables, mark, *further, **_):
        marks.append(mark)
        # Two lines, as a launcher may pass them on.
        further[-1](f"{MARKER}{json.dumps(answers)}{MARKER}0")
        return argv

    def alone(run):
        commands.append(run)
        return processes.Outcome(0, False, [])

    monkeypatch.setattr(available.processes, "run", run)
    monkeypatch.setattr(available.turns, "alone", alone)
    jobs, reasons = asked(jobs_of(*names, precision="tf32"), LOCAL)
    # Two matrices that ask about one job at once end each only what it has started.
    monkeypatch.setattr(available.os, "getpid", lambda: 7)
    asked(jobs_of(*names, precision="tf32"), LOCAL)
    assert marks[0] != marks[1]
    assert [command[-4:] for command in commands] == [["tf32", "ddp", "deepspeed_zero", "horovod_torch"]] * 2
    assert [job.backend for job in jobs] == ["ddp"]
    assert reasons == {name: f"{name} is for CPUs" for name in names[1:3]} | {"deepspeed_zero@3": "not here"}
    # Where ranks are elsewhere, by what starts a process there, with the cores of a rank.
    elsewhere = Launcher("torchrun", "torchrun", {"A": "b"}, agent_launcher=("pals", "mpiexec"))
    available.answers_of(["ddp"], Job("ddp", 6, 2, Settings(cores_per_rank=3, machine="here")), elsewhere, through_launcher=True)
    assert commands[-1][:11] == ["mpiexec", "-n", "1", "--ppn", "1", "--depth", "3", "--cpu-bind", "depth", "--env", "A=b"]


# A backend that says what it finds, and none that can be imported.
FINDS = """
from common.declarations import Backend
from common.training.program import main
from frameworks import ddp

BACKEND = Backend()


class Trainer(ddp.Trainer):
    device_problems = ()


if __name__ == "__main__":
    main(Trainer, __file__)
"""
CANNOT_START = "from common.backends import Backend\n\nBACKEND = Backend()\nimport os\nos._exit(7)\n"


@pytest.mark.matrix
def test_a_matrix_asks_through_the_launcher_where_hosts_are_given(checkout, tmp_path):
    (tmp_path / "nodes").write_text("localhost\n")
    arguments = ("1", "--backends", "finds_gpu,ddp,cannot_start", "--workloads", "cnn", "--epochs", "1", "--hosts", tmp_path / "nodes")
    with with_backends(checkout, {"finds_gpu": FINDS, "cannot_start": CANNOT_START}):
        done = matrix(checkout, tmp_path / "results", *arguments)
    skipped = "skipping ddp: this PyTorch has no CUDA\nskipping cannot_start: its import ended with exit status 7\n"
    assert done.stderr.startswith(skipped)
    (record,) = records_in(tmp_path / "results")
    assert (record["backend"], record["settings"]["device"], done.returncode) == ("finds_gpu", "cuda", 1)
    # It has claimed more than there is.
    assert record["error"].startswith("--device cuda, but this PyTorch has no CUDA; use --device cpu")

"""The screen of launch/matrix.sh --check: each planted fault gives its one line, with the remedy."""

import errno
import os
import shutil
import socket
import subprocess
from types import SimpleNamespace

import pytest

from common.config import Settings
from common.errors import UserError
from launch.launchers import detect
from launch.launchers.commands import ALLOCATIONS, Launcher
from launch.run import available, check, lock, node
from launch.run.available import Step
from launch.run.node import Place
from launch.run.plan import Job
from tests.support.running import BIN, ROOT

MPICH = ("MPICH Version: 5.0.2", "/its/libmpi.so.12")
NODE = {
    "num_cores": 8, "ignored_variables": {}, "shared_memory": (10**9, 10**9),
    "horovod": MPICH[1], "gpu": [], "num_gpus": 0, "visible": {},
}  # fmt: skip
LOCAL, SRUN = Launcher("mpich", "true", python=(".venv/bin/python",)), Launcher("srun", "true", mpi="pmi2", python=(".venv/bin/python",))
TORCHRUN = LOCAL._replace(name="torchrun")
HIDDEN = {"visible": {"CUDA_VISIBLE_DEVICES": ""}}
NO_MPI = available.mpi_problem("horovod_tf", "torchrun")
STALE = "setup: .venv is missing or stale; run launch/setup.sh"


def script(root, text, status=0):
    path = root / "launch" / "setup.sh"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ntouch {root}/started\necho '{text}'\nexit {status}\n")
    path.chmod(0o755)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A checkout whose environment is up to date, without an allocation, where no other matrix runs."""
    for name in ALLOCATIONS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(lock.VARIABLE, str(tmp_path / "lock"))
    monkeypatch.setattr(check, "ROOT", tmp_path / "root")
    script(tmp_path / "root", "setup: .venv is up to date")
    shutil.copy(ROOT / "environment.yml", tmp_path / "root")
    return tmp_path / "root"


def step(*cores, error=None, **changes):
    """The Step of ranks that have these cores of one node."""
    job = Job("ddp", len(cores), len(cores), Settings())
    places = [Place(rank, "n1", "its boot", of_rank, 8, None, MPICH, None, NODE)._replace(**changes) for rank, of_rank in enumerate(cores)]
    return Step(job, [] if error else places, error)


def facts(folder, node=None, settings=None, **changes):
    """The Facts of a matrix of one size that goes well, but for the changes."""
    of_runs = Settings(workload="cnn", results=folder / "results", machine="here", **settings or {})
    jobs = [Job(name, 2, 2, of_runs) for name in ("ddp", "horovod_torch")]
    values = {"launcher": LOCAL, "runnable": tuple(jobs), "steps": (step([0], [1], of_node=NODE | (node or {})),)} | changes
    return check.Facts(of_runs, jobs, **values)


def not_ok(facts_of_matrix):
    return [line for line in check.screen(facts_of_matrix) if line[0] != "ok"]


def test_a_machine_on_which_all_is_well_has_no_other_line_than_ok_and_no_file_is_left(root, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    assert not_ok(facts(tmp_path)) == []
    assert set(tmp_path.rglob("*")) - set(before) == {root / "started"}


def of(*steps):
    return {"steps": steps}


@pytest.mark.parametrize(
    ("changes", "subject", "what", "remedy"),
    [
        ({"launcher": None, "errors": ("no srun found; load it",)}, "launcher", "no srun found", "; load it"),
        (of(step([0], [1], error="MPI sees 1; start")), "ranks", "2 ranks fail: MPI sees 1", "; start"),
        (of(step([0], [1], error="srun: error: x")), "ranks", "2 ranks fail: srun: error: x", "; --dry-run prints"),
        (of(step([0], mpi=("Open MPI v4.1.4", "/usr/libmpi.so.40"))), "MPI", "two MPIs: Horovod loads /its", "TANDEM_MPICC="),
        (of(step([0], mpi=None, mpi_problem="no libmpi")), "MPI", "mpi4py cannot be used (no libmpi)", "give --launcher torchrun"),
        ({"node": {"horovod": "not found"}}, "MPI", "Horovod's MPI library is not found", "; load the module"),
        ({"node": {"shared_memory": (10**6, 64 * 10**6)}}, "/dev/shm", "and with MPICH 2 ranks take 11", "; make it larger"),
        ({"reasons": {"horovod_tf": "ImportError: x"}}, "backends", "horovod_tf: ImportError: x", "; leave it out of --backends"),
        ({"errors": ("srun: error: x",)}, "backends", "srun: error: x", "; --dry-run prints"),
        ({"gpu_problems": ("PyTorch finds no GPU",)}, "GPUs", "n1 shows none (PyTorch finds no GPU)", "--gres=gpu:4"),
        ({"settings": {"device": "cuda"}, "node": HIDDEN}, "GPUs", "n1 shows none, with CUDA_VISIBLE_DEVICES=''", "--device cpu"),
        ({"settings": {"device": "cuda"}, "errors": ("no CUDA; --light",)}, "backends", "no CUDA", "; --light"),
    ],
)  # fmt: skip
def test_a_fault_has_one_line_with_its_remedy(changes, subject, what, remedy, root, tmp_path):
    ((severity, its_subject, text),) = [line for line in not_ok(facts(tmp_path, **changes)) if line[1] == subject]
    assert (severity, its_subject) == ("problem", subject)
    assert what in text
    assert remedy in text
    assert {line[1] for line in not_ok(facts(tmp_path, **changes)) if line[0] == "problem"} == {subject}


@pytest.mark.parametrize(("threads", "severity"), [(16, "problem"), (8, "ok")])
def test_a_launcher_that_counts_hardware_threads_as_cores_is_a_problem(threads, severity, root, tmp_path):
    started = of(step([*range(threads)], of_node=NODE | {"num_cores": 64}))
    launched = facts(tmp_path, settings={"threads": threads}, launcher=SRUN, **started)
    lines = [line for line in check.screen(launched) if line[1] == "cores"]
    text = "srun gives a rank 8 physical cores of the 16 that it needs; hardware threads"
    assert any(text in line[2] for line in lines) == (severity == "problem")
    assert lines[-1][0] == severity


def test_the_ranks_of_the_largest_size_are_shown_with_their_nodes_and_cores(root, tmp_path):
    largest = step([*range(7)], [7, 15])
    largest.places.append(largest.places[0]._replace(rank=2, host="n2"))
    lines = [line for line in check.screen(facts(tmp_path, steps=(step([0]), largest))) if line[1] == "ranks"]
    assert lines == [("ok", "ranks", "2 ranks on n1, n2 meet; those of n1 have the cores 0-6, 7+15")]


@pytest.mark.parametrize(
    ("changes", "subject", "what"),
    [
        # As in a control group of one CPU.
        ({"steps": (step([0]), step([0], [0]), step([0], [0], [0]))}, "cores", "oversubscribed at 2, 3 ranks"),
        ({"steps": (step([0], [1], quota_cores=1.5),)}, "cores", "oversubscribed at 2 ranks"),
        ({"node": {"ignored_variables": {"OMP_PLACES": "cores"}}}, "cores", "sets their threads: OMP_PLACES=cores"),
        ({"launcher": LOCAL._replace(variables={"MKL_NUM_THREADS": "2"})}, "cores", "sets their threads: MKL_NUM_THREADS=2"),
        ({"node": {"num_gpus": 4, "gpu": ["H100", "driver 580"]}}, "GPUs", "4 visible on n1 (H100, driver 580)"),
        ({"reasons": {"horovod_tf": NO_MPI}, "launcher": TORCHRUN}, "backends", "skipped: horovod_tf: it needs MPI"),
        ({"reasons": {"parameter_server": "it has no GPU"}, "requested": "all"}, "backends", "parameter_server: it has no GPU"),
    ],
)  # fmt: skip
def test_what_is_usual_or_not_certain_is_a_note(changes, subject, what, root, tmp_path):
    (text,) = [text for severity, its_subject, text in not_ok(facts(tmp_path, **changes)) if (severity, its_subject) == ("note", subject)]
    assert what in text
    assert all(severity == "note" for severity, *_ in not_ok(facts(tmp_path, **changes)))


def test_the_mpi_of_horovod_is_not_that_of_its_cxx_bindings():
    resolved = {"libmpi_cxx.so.40": "/a/cxx", "libmpicxx.so.12": "not found", "libmpi_gnu_123.so.12": "/b/gnu", "libmpi.so.12": "not found"}
    assert node.RESOLVED.findall("".join(f"\t{name} => {path} (0x1)\n" for name, path in resolved.items())) == ["/b/gnu", "not found"]


def raises(number):
    def function(*_, **__):
        raise OSError(number, os.strerror(number))

    return function


@pytest.mark.parametrize(
    ("name", "function", "line"),
    [
        ("os.access", lambda *_: False, ("results", "cannot write records to ", "; give another folder with --results")),
        ("tempfile.TemporaryFile", raises(errno.EROFS), ("results", "(Read-only file system)", "give another folder with --results")),
        ("tempfile.TemporaryFile", raises(errno.EDQUOT), ("results", "(Disk quota exceeded)", "; make room, or give another folder")),
    ],
)
def test_a_fault_of_the_results_has_one_line_with_its_remedy(name, function, line, root, tmp_path, monkeypatch):
    monkeypatch.setattr(name, function)
    ((severity, subject, text),) = not_ok(facts(tmp_path))
    assert (severity, subject) == ("problem", line[0])
    assert line[1] in text
    assert line[2] in text


@pytest.mark.parametrize(("variables", "text"), [({}, STALE[7:]), ({"SLURM_JOB_ID": "7"}, f"{STALE[7:]} on a login node")])
def test_a_stale_environment_and_another_matrix_are_problems(variables, text, root, tmp_path, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    script(root, STALE, 1)
    assert not_ok(facts(tmp_path)) == [("problem", "environment", text)]
    jobs = facts(tmp_path).jobs
    (tmp_path / "results" / "here").mkdir(parents=True)
    with lock.locked(tmp_path / "results" / "here", jobs, False):
        holder = lock.path_of(tmp_path / "results" / "here", jobs).read_text()
        assert [line[1] for line in not_ok(facts(tmp_path))] == ["results", "environment"]
        assert not_ok(facts(tmp_path))[0][2].startswith("another matrix is running here")
        assert lock.path_of(tmp_path / "results" / "here", jobs).read_text() == holder
        assert len(not_ok(facts(tmp_path, shares_machine=True))) == 1


MATRIX = SimpleNamespace(backends="ddp", share_machine=False)


def asked(launcher, tmp_path, answer, monkeypatch):
    questions = []

    def answers_of(backends, job, launcher, through_launcher):
        questions.append(through_launcher)
        if isinstance(answer, UserError):
            raise answer
        return dict.fromkeys(backends, answer)

    monkeypatch.setattr(available, "answers_of", answers_of)
    monkeypatch.setattr(available, "step_of", lambda job, _: step(*[[0]] * job.num_ranks))
    planned = facts(tmp_path)
    choose = launcher if callable(launcher) else lambda: launcher
    return check.facts_of(MATRIX, planned.settings, planned.jobs[:1], choose), questions


ANSWER = {"cpu": None, "cuda": "PyTorch finds no GPU", "num_gpus": 0}


@pytest.mark.parametrize(
    ("launcher", "variables", "expected"),
    [(LOCAL, {}, [False]), (SRUN, {}, []), (SRUN, {"SLURM_JOB_ID": "7"}, [True])],
)
def test_the_backends_are_asked_once_where_the_ranks_run_and_outside_an_allocation_not(
    launcher, variables, expected, root, tmp_path, monkeypatch
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    answers, questions = asked(launcher, tmp_path, ANSWER, monkeypatch)
    assert questions == expected
    assert (answers.node, answers.gpu_problems) == ((NODE, ("PyTorch finds no GPU",)) if expected else (None, ()))
    assert any("outside an allocation" in text for _, _, text in check.screen(answers)) is not bool(expected)


def test_where_no_launcher_is_or_none_answers_the_rest_is_said(root, tmp_path, monkeypatch):
    def missing():
        raise detect.NotFound("no mpiexec found; load a module")

    for launcher, answer in ((missing, ANSWER), (LOCAL, UserError("no mpiexec found; load a module"))):
        answers, _ = asked(launcher, tmp_path, answer, monkeypatch)
        assert answers.errors == ("no mpiexec found; load a module",)
        assert {line[1] for line in check.screen(answers)} >= {"results", "environment"}


SIZES = [Job("ddp", num_ranks, 2, Settings(machine="here", epochs=1)) for num_ranks in (4, 1, 2)]


def test_the_ranks_of_each_size_are_started_the_smallest_first_up_to_one_that_fails(root, monkeypatch):
    started = []

    def step_of(job, _):
        started.append(job.num_ranks)
        return step([0], error="x" if job.num_ranks == 2 else None)

    monkeypatch.setattr(available, "step_of", step_of)
    assert [step.error for step in check.steps_of(SIZES, LOCAL)] == [None, "x"]
    assert started == [1, 2]


@pytest.fixture
def launcher(root, tmp_path):
    """The environment's mpiexec, and a function that replaces it by a script."""

    def replaced(text):
        program = tmp_path / "mpiexec"
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        return LOCAL._replace(executable=str(program))

    return SimpleNamespace(real=LOCAL._replace(executable=str(BIN / "mpiexec")), replaced=replaced)


@pytest.mark.parametrize(
    ("variables", "job", "error"),
    [
        ({"UCX_TLS": "rc"}, SIZES[2], "MPI cannot start: UCX has no usable transports/devices (asked rc"),
        # The file has one node of two.
        (
            {"HYDRA_HOST_FILE": "{folder}/nodes"},
            SIZES[0],
            "4 of 4 ranks are on {host}, and 2 on a node are planned: MPICH",
        ),
        ({}, SIZES[2], None),
    ],
)
def test_the_ranks_of_a_step_are_started_and_meet_as_those_of_a_run(variables, job, error, launcher, monkeypatch, tmp_path):
    (tmp_path / "nodes").write_text("localhost\n")
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(folder=tmp_path))
    answer, host = available.step_of(job, launcher.real), socket.gethostname()
    if error:
        assert (answer.places, str(answer.error).startswith(error.format(host=host))) == ([], True), answer.error
    else:
        assert ([(place.rank, place.host) for place in answer.places], answer.error) == ([(0, host), (1, host)], None)
        assert [bool(place.of_node) for place in answer.places] == [True, False]
        assert answer.places[0].mpi[0].startswith("MPICH Version: ")


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        # As Open MPI 4.1 prints it in a frame.
        (
            f"{74 * '-'}\nmpiexec has detected an attempt to run as root.\n\nWe strongly suggest that you do not.\n{74 * '-'}",
            "Open MPI's launcher refuses to run as root; give --launcher-args=--allow-run-as-root, or --launcher torchrun",
        ),
        ("it is broken", "ended with exit status 1; the last line: it is broken"),
    ],
    ids=["root", "broken"],
)
def test_a_launcher_that_starts_nothing_here_is_the_error_of_its_step(text, stop, launcher, tmp_path):
    assert available.step_of(SIZES[2], launcher.replaced(f"echo '{text.replace(chr(39), '')}' >&2\nexit 1")) == Step(SIZES[2], [], stop)


def test_the_frameworks_say_it_so_where_they_find_no_gpu():
    for path in ("pytorch/devices.py", "tensorflow/tensorflow_trainer.py"):
        assert f'{check.FINDS_NONE}" if device == "cuda"' in (ROOT / "frameworks" / "shared" / path).read_text()


@pytest.mark.parametrize("has_environment", [True, False])
def test_the_check_sets_nothing_up(has_environment, tmp_path):
    script(tmp_path, "set up")
    shutil.copy(ROOT / "launch" / "matrix.sh", tmp_path / "launch")
    if has_environment:
        (tmp_path / ".venv").mkdir()
    variables = os.environ | {"TANDEM_PYTHON": "/bin/false"}
    done = subprocess.run(
        [tmp_path / "launch" / "matrix.sh", "2", "--check"], env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("problem environment  ")
    assert "run launch/setup.sh" in done.stdout
    assert not (tmp_path / "started").exists()

"""The screen of launch/matrix.sh --check: each planted fault gives its one line, with the remedy."""

import errno
import json
import os
import shutil
import socket
import subprocess
from types import SimpleNamespace

import pytest

from common.config import Settings
from common.errors import UserError
from common.ranks import slurm
from common.record.definition import ENDED_BY_JOB
from launch.launchers import detect
from launch.launchers.commands import ALLOCATIONS, Launcher
from launch.run import available, check, lock, node, session
from launch.run.plan import Job
from tests.support.running import BIN, ROOT, completed

MPICH = {"version": "MPICH Version: 5.0.2", "path": "/its/libmpi.so.12", "problem": None}
OPEN_MPI = {"version": "Open MPI v4.1.4", "path": "/usr/libmpi.so.40", "problem": None}
NODE = {
    "host": "n1", "num_cores": 8, "num_cores_allowed": 8,
    "quota_cores": None, "ignored_variables": {}, "available_bytes": 64e9, "shared_memory": (10**9, 10**9),
    "interfaces": ["eth0", "lo"], "mpi": MPICH, "horovod": MPICH["path"], "gpu": [], "num_gpus": 0, "visible": {},
}  # fmt: skip
LOCAL, SRUN = Launcher("mpich", "true", python=(".venv/bin/python",)), Launcher("srun", "true", mpi="pmi2", python=(".venv/bin/python",))
TORCHRUN = LOCAL._replace(name="torchrun")
ON_HSN, HIDDEN = LOCAL._replace(variables={"GLOO_SOCKET_IFNAME": "hsn0"}), {"visible": {"CUDA_VISIBLE_DEVICES": ""}}
OF_ENVIRONMENT = {"mpi": MPICH | {"path": "/its/.venv/lib/libmpi.so.12"}, "horovod": None}
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
    for name in (*ALLOCATIONS, *check.INTERFACES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(lock.VARIABLE, str(tmp_path / "lock"))
    monkeypatch.setattr(check, "ROOT", tmp_path / "root")
    monkeypatch.setattr(slurm, "mpi_types", lambda: ["pmi2", "none"])
    script(tmp_path / "root", "setup: .venv is up to date")
    shutil.copy(ROOT / "environment.yml", tmp_path / "root")
    return tmp_path / "root"


def facts(folder, node=None, settings=None, **changes):
    """The Facts of a matrix of one size that goes well, but for the changes."""
    of_runs = Settings(workload="cnn", results=folder / "results", machine="here", **settings or {})
    jobs = [Job(name, 2, 2, of_runs) for name in ("ddp", "horovod_torch")]
    values = {"of_ranks": True, "launcher": LOCAL, "runnable": tuple(jobs)} | changes
    return check.Facts(of_runs, jobs, NODE | (node or {}), **values)


def not_ok(facts_of_matrix):
    return [line for line in check.screen(facts_of_matrix) if line[0] != "ok"]


def test_a_machine_on_which_all_is_well_has_no_other_line_than_ok_and_no_file_is_left(root, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    assert not_ok(facts(tmp_path)) == []
    assert set(tmp_path.rglob("*")) - set(before) == {root / "started"}


@pytest.mark.parametrize(
    ("changes", "subject", "what", "remedy"),
    [
        ({"launcher": None, "errors": ("no srun found; load it",)}, "launcher", "no srun found", "; load it"),
        ({"node": {"mpi": OPEN_MPI}, "launcher": SRUN}, "MPI", "two MPIs: Horovod loads /its/libmpi.so.12, mpi4py", "TANDEM_MPICC="),
        ({"launcher": LOCAL._replace(name="openmpi")}, "MPI", "not the MPI of openmpi", "--launcher mpich, or run TANDEM_MPICC="),
        ({"node": {"horovod": "not found"}}, "MPI", "Horovod's MPI library is not found", "; load the module"),
        ({"node": {"mpi": {"error": "no libmpi"}}}, "MPI", "mpi4py cannot be used (no libmpi)", "give --launcher torchrun"),
        ({"node": {"mpi": MPICH | {"problem": "UCX has none"}}}, "MPI", "(/its/libmpi.so.12) does not start: UCX has none", "; see what"),
        ({"node": {"shared_memory": (10**6, 64 * 10**6)}}, "/dev/shm", "and with MPICH 2 ranks take 11", "; make it larger"),
        ({"launcher": SRUN._replace(mpi="pmix")}, "PMI", "srun --mpi=pmix was to join", '; choose what their MPI speaks: mpi = "…"'),
        ({"launcher": LOCAL._replace(name="pals"), "node": OF_ENVIRONMENT}, "MPI", "which pals does not join: each rank", "; run TANDEM"),
        ({"launcher": SRUN._replace(mpi="none")}, "PMI", "MPICH Version: 5.0.2 speaks pmi2 and pmix", "or SLURM_MPI_TYPE"),
        ({"launcher": ON_HSN}, "network", "GLOO_SOCKET_IFNAME is hsn0, and n1 has eth0, lo", "; name one of them in [variables]"),
        ({"reasons": {"horovod_tf": "ImportError: x"}}, "backends", "horovod_tf: ImportError: x", "; leave it out of --backends"),
        ({"errors": ("srun: error: x",)}, "backends", "srun: error: x", "; --dry-run prints"),
        ({"gpu_problems": ("PyTorch finds no GPU",)}, "GPUs", "n1 shows none (PyTorch finds no GPU)", "--gres=gpu:4"),
        ({"settings": {"device": "cuda"}, "node": HIDDEN}, "GPUs", "n1 shows none, with CUDA_VISIBLE_DEVICES=''", "--device cpu"),
        ({"settings": {"device": "cuda"}, "errors": ("no CUDA; --light",)}, "backends", "no CUDA", "; --light"),
        ({"node": {"available_bytes": 1e6}}, "memory", "and n1 has 0.001 GB", "; use more nodes by --ranks-per-node"),
    ],
)  # fmt: skip
def test_a_fault_has_one_line_with_its_remedy(changes, subject, what, remedy, root, tmp_path):
    ((severity, its_subject, text),) = [line for line in not_ok(facts(tmp_path, **changes)) if line[1] == subject]
    assert (severity, its_subject) == ("problem", subject)
    assert what in text
    assert remedy in text
    assert {line[1] for line in not_ok(facts(tmp_path, **changes)) if line[0] == "problem"} == {subject}


@pytest.mark.parametrize(
    ("suffix", "remedy"), [("i", "correct host_suffix in the machine file"), ("", "give names that resolve here by --hosts")]
)
def test_a_first_node_without_an_address_is_told_in_the_resolvers_words(suffix, remedy, root, tmp_path, monkeypatch):
    monkeypatch.setattr(socket, "gethostbyname", raises(errno.EHOSTUNREACH))
    (tmp_path / "nodes").write_text("there.invalid\n")
    launcher = LOCAL._replace(hosts=str(tmp_path / "nodes"), variables={"TANDEM_HOST_SUFFIX": suffix})
    on_two_nodes = facts(tmp_path, launcher=launcher)
    on_two_nodes = on_two_nodes._replace(jobs=[job._replace(ranks_per_node=1) for job in on_two_nodes.jobs])
    (text,) = [text for _, subject, text in not_ok(on_two_nodes) if subject == "network"]
    assert text == (f"the first node, there{suffix or '.invalid'}, has no address here (No route to host); {remedy}")


@pytest.mark.parametrize(
    ("mpi", "offered", "severity"),
    [
        ("pmi2", ["pmi2"], "ok"), ("pmix_v4", ["pmix", "pmix_v4"], "ok"), ("pspmi", ["pspmi", "pspmix"], "ok"),
        ("pmi2", ["pspmi", "pspmix"], "problem"), ("cray_shasta", ["cray_shasta"], "problem"),
    ],
)  # fmt: skip
def test_every_plugin_of_an_interface_that_the_mpi_speaks_is_accepted(mpi, offered, severity, root, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm, "mpi_types", lambda: offered)
    (line,) = [line for line in check.screen(facts(tmp_path, launcher=SRUN._replace(mpi=mpi))) if line[1] == "PMI"]
    assert line[0] == severity


@pytest.mark.parametrize(("threads", "severity"), [(16, "problem"), (8, "ok")])
def test_a_launcher_that_counts_hardware_threads_as_cores_is_a_problem(threads, severity, root, tmp_path):
    launched = facts(tmp_path, node={"num_cores": 64}, settings={"threads": threads}, launcher=SRUN)
    lines = [line for line in check.screen(launched) if line[1] == "cores"]
    text = "srun gives a rank 8 physical cores of the 16 that it needs; hardware threads"
    assert any(text in line[2] for line in lines) == (severity == "problem")
    assert lines[-1][0] == severity


@pytest.mark.parametrize(
    ("changes", "subject", "what"),
    [
        # Of ranks of another node less is known.
        ({"gpu_problems": ("PyTorch finds no GPU",), "of_ranks": False}, "GPUs", "n1 shows none"),
        ({"node": {"num_cores": 1, "num_cores_allowed": 1}}, "cores", "oversubscribed at 2 ranks"),
        ({"node": {"quota_cores": 1.5}}, "cores", "oversubscribed at 2 ranks"),
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


def test_mpi_is_really_started_and_what_its_library_prints_is_the_problem(monkeypatch):
    assert node.of_mpi4py()["problem"] is None
    monkeypatch.setenv("UCX_TLS", "rc")
    assert node.of_mpi4py()["problem"].startswith("MPI cannot start: UCX has no usable transports/devices (asked rc")
    monkeypatch.setattr(node, "PROGRAM", ("sh", "-c", f"echo '{json.dumps(MPICH)}'; exec sleep 60"))
    monkeypatch.setattr(node, "INIT_SECONDS", 2)
    assert node.of_mpi4py()["problem"] == "MPI_Init did not return within 2 s"


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
        ("fcntl.flock", raises(errno.ENOLCK), ("results", "cannot be locked (No locks available)", "; give --results on another")),
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

    def answers_of(backends, job, launcher, through_launcher, with_node):
        questions.append((through_launcher, with_node))
        if isinstance(answer, UserError):
            raise answer
        return dict.fromkeys(backends, answer)

    monkeypatch.setattr(available, "answers_of", answers_of)
    monkeypatch.setattr(node, "describe", lambda: NODE | {"host": "login"})
    planned = facts(tmp_path)
    choose = launcher if callable(launcher) else lambda: launcher
    return check.facts_of(MATRIX, planned.settings, planned.jobs[:1], choose), questions


ANSWER = {"cpu": None, "cuda": "PyTorch finds no GPU", "node": NODE, "num_gpus": 0}


@pytest.mark.parametrize(
    ("launcher", "variables", "through_launcher", "of_ranks"),
    [(LOCAL, {}, False, True), (SRUN, {}, False, False), (SRUN, {"SLURM_JOB_ID": "7"}, True, True)],
)
def test_the_backends_are_asked_once_as_a_dry_run_asks_them(launcher, variables, through_launcher, of_ranks, root, tmp_path, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found, questions = asked(launcher, tmp_path, ANSWER, monkeypatch)
    assert questions == [(through_launcher, True)]
    assert (found.of_ranks, found.node["host"], found.gpu_problems) == (of_ranks, "n1", ("PyTorch finds no GPU",))


def test_where_no_launcher_is_or_answers_the_rest_is_told_of_this_node(root, tmp_path, monkeypatch):
    def missing():
        raise detect.NotFound("no mpiexec found; load a module")

    found, _ = asked(missing, tmp_path, ANSWER, monkeypatch)
    assert (found.launcher, found.errors, found.node["host"]) == (None, ("no mpiexec found; load a module",), "login")
    found, _ = asked(LOCAL, tmp_path, UserError("mpiexec could not be started"), monkeypatch)
    assert (found.errors, found.node["host"], found.of_ranks) == (("mpiexec could not be started",), "login", False)


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        # As Open MPI 4.1 prints it in a frame.
        (
            f"{74 * '-'}\nmpiexec has detected an attempt to run as root.\n\nWe strongly suggest that you do not.\n{74 * '-'}",
            "Open MPI's launcher refuses to run as root; give --launcher-args=--allow-run-as-root, or --launcher torchrun",
        ),
        ("it is broken", "ended with exit status 1; the last line: it is broken; give another --launcher"),
    ],
    ids=["root", "broken"],
)
def test_a_launcher_that_starts_nothing_here_is_a_problem(text, stop, root, tmp_path, monkeypatch):
    program = tmp_path / "mpiexec"
    program.write_text(f"#!/bin/sh\necho '{text.replace(chr(39), '')}' >&2\nexit 1\n")
    program.chmod(0o755)
    found, _ = asked(LOCAL._replace(name="openmpi", executable=str(program)), tmp_path, ANSWER, monkeypatch)
    assert (found.errors, found.of_ranks) == ((stop,), True)
    assert next(check.backends(found)) == ("problem", stop)


def test_the_frameworks_say_it_so_where_they_find_no_gpu():
    for path in ("pytorch/devices.py", "tensorflow/tensorflow_trainer.py"):
        assert f'{check.FINDS_NONE}" if device == "cuda"' in (ROOT / "frameworks" / "shared" / path).read_text()


@pytest.mark.parametrize(
    ("status", "error", "pids_by_rank", "expected"),
    [
        ("failed", "x", None, True),
        ("failed", "interrupted", None, False),
        ("failed", ENDED_BY_JOB, None, False),
        ("failed", "x", [7], False),
        ("ok", None, [7], False),
    ],
)
def test_a_run_that_failed_before_its_first_step_leads_to_the_check(status, error, pids_by_rank, expected):
    assert session.failed_at_start([SimpleNamespace(status=status, error=error, pids_by_rank=pids_by_rank)]) == expected


def test_bad_flags_have_exit_status_2():
    done = completed(BIN / "python", "-m", "launch.matrix", "2", "--check", "--launcher", "nonsense")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


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


@pytest.mark.matrix
def test_the_check_of_this_machine_leaves_no_record(checkout, tmp_path):
    program = (BIN / "python", "-m", "launch.matrix", "1", "--backends", "ddp", "--workloads", "cnn", "--check")
    done = completed(*program, "--results", tmp_path / "results", cwd=checkout)
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert {severity for severity, *_ in lines} <= {"ok", "note", "problem"}
    assert {subject for _, subject, _ in lines} >= {"launcher", "backends", "cores", "memory", "results", "environment"}
    assert done.returncode == any(severity == "problem" for severity, *_ in lines)
    assert list(tmp_path.iterdir()) == []

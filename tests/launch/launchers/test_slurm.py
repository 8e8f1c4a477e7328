"""A real Slurm cluster of two nodes: the matrix with srun, and printed job scripts with sbatch."""

import re
import subprocess
import time

import psutil
import pytest

from launch.launchers import machine_files
from launch.run import processes, supervisor
from tests.support import kills, site, slurm_cluster
from tests.support.backends import LAUNCHED
from tests.support.forked import run_module
from tests.support.running import BIN, ROOT, completed, environ, left_over, matrix, records_in

pytestmark = pytest.mark.matrix


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    if why_not := slurm_cluster.why_not():
        pytest.skip(why_not)
    with slurm_cluster.started(tmp_path_factory.mktemp("slurm")) as variables:
        yield variables


def test_the_matrix_trains_the_same_on_two_nodes_through_srun_as_on_one(slurm, checkout, short_run, on_one_node, tmp_path):
    settings = ("--backends", ",".join(LAUNCHED), "--workloads", "cnn", *short_run, "--ranks-per-node", "1", *site.write(tmp_path))
    # As `sbatch --export=NONE` sets it for the srun of its job: variables reach the ranks all the same.
    variables = slurm | {"SLURM_EXPORT_ENV": "NONE"}
    done = matrix(checkout, tmp_path, "2", *settings, around=("salloc", "-N2", "-n2"), variables=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    record_of_backend = {record["backend"]: record for record in records_in(tmp_path)}
    assert record_of_backend.keys() == set(LAUNCHED)
    for backend, record in record_of_backend.items():
        assert (record["launcher"], record["num_nodes"]) == ("srun", 2)
        assert record["settings"]["device"] == record["environment"]["device"] == "cpu"
        site.expect(record, tmp_path)
        assert (record["in_sync"], len(record["losses"])) == (True, 6)
        assert backend not in on_one_node or record["losses"] == on_one_node[backend]["losses"], backend


SALLOC = re.search(r"`(salloc [^`]*?)\s+launch/matrix\.sh (8 [^`]*?)\s+--check`", (ROOT / "launch" / "SITES.md").read_text())


@pytest.mark.parametrize(
    ("asked", "severity", "text"),
    [
        ("", "ok", "8 ranks on "),
        # Slurm counts hardware threads, of which each core has two here.
        ("--threads-per-core=1", "problem", "8 ranks on 2 nodes fail: srun: error: Unable to create step for job"),
    ],
)
def test_the_check_of_the_page_starts_the_step_of_a_run_and_fails_as_that_does(asked, severity, text, slurm, checkout, tmp_path):
    allocation, arguments = (part.split() for part in SALLOC.groups())
    matrix_of_page = (*arguments, "--backends", "ddp", "--workloads", "cnn", "--check")
    done = matrix(checkout, tmp_path, *matrix_of_page, around=[word for word in allocation if word != asked], variables=slurm)
    (line,) = re.findall(r"^(\w+) +ranks +(.*)$", done.stdout, re.MULTILINE)
    assert (line[0], line[1][: len(text)]) == (severity, text), done.stdout + done.stderr
    assert ("--threads-per-core=1, as the jobs of --print-jobs do" in line[1]) == (severity == "problem")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [name for name in machine_files.names() if machine_files.read(name).launcher == "srun"])
def test_slurm_takes_the_printed_jobs_of_each_site(name, slurm, tmp_path):
    ranks = 2 * machine_files.read(name).ranks_per_node
    status, printed, error = run_module("launch.matrix", "1", ranks, "--machine-file", name, "--print-jobs", "slurm")
    assert status == 0, error
    (tmp_path / "submit.sh").write_text(printed)
    # Of five GPUs on a node with four none is.
    for further, is_taken in (((), True), (("--gres=gpu:5",), False)):
        submitted = completed("bash", tmp_path / "submit.sh", "--partition=gpus", *further, variables=slurm)
        assert (submitted.returncode == 0) == is_taken, submitted.stdout + submitted.stderr
        if is_taken:
            first, second, *_ = re.findall(r": (\d+)$", submitted.stdout, re.MULTILINE)
            assert f"Dependency=afterany:{first}" in completed("scontrol", "show", "job", second, variables=slurm).stdout
    assert "node configuration is not available" in submitted.stderr


OPEN_MPI = """launcher_args = "--comment 'with mpi4py over Open MPI'"
[variables]
MPI4PY_MPIABI = "openmpi"
MPI4PY_LIBMPI = "libmpi.so.40"
# Over Open MPI 4.1's own TCP component one rank in fifty crashes in MPI_Finalize; libfabric carries the messages.
OMPI_MCA_pml = "cm"
OMPI_MCA_mtl = "ofi"
"""
# The folder has an mpi4py that cannot be imported.
WITHOUT_MPI4PY = """[variables]
PYTHONPATH = "{folder}"
"""


@pytest.mark.parametrize(
    ("machine", "backend", "mpi", "interface"),
    [(OPEN_MPI, "light", "Open MPI", "pmix"), (WITHOUT_MPI4PY, "ddp", "None", "pmi2")],
)
def test_with_the_mpi_of_the_site_and_with_none_ranks_of_two_nodes_find_each_other(
    machine, backend, mpi, interface, slurm, light_checkout, short_run, tmp_path
):
    (tmp_path / "mpi4py.py").write_text("raise ImportError('not here')")
    (tmp_path / "site.toml").write_text(machine.format(folder=tmp_path))
    settings = ("--backends", backend, "--workloads", "cnn", *short_run, "--ranks-per-node", "1", "--machine-file", tmp_path / "site.toml")
    # Those of a job script, which nobody reaches.
    variables = slurm | {"MASTER_ADDR": "no.such.host", "MASTER_PORT": "6000"}
    done = matrix(light_checkout, tmp_path, "2", *settings, around=("salloc", "-N2", "-n2"), variables=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = records_in(tmp_path)
    assert (record["launcher"], record["num_nodes"], record["in_sync"], len(record["losses"])) == ("srun", 2, True, 6)
    assert str(record["environment"]["mpi"]).startswith(mpi)
    assert f"--mpi={interface} " in record["command"]


def test_a_printed_job_that_is_requeued_in_the_middle_completes_each_run_exactly_once(slurm, light_checkout, short_run, tmp_path):
    results = tmp_path / "results"
    settings = ("--backends", "light", "--repeats", "2", "--workloads", "cnn", *short_run, "--ranks-per-node", "1", "--machine", "here")
    printed = matrix(light_checkout, results, "2", *settings, "--print-jobs", "slurm")
    assert (printed.returncode, list(results.glob("*"))) == (0, []), printed.stderr
    (tmp_path / "submit.sh").write_text(printed.stdout)
    submitted = completed("bash", tmp_path / "submit.sh", f"--output={tmp_path}/out", variables=slurm)
    (job,) = re.findall(r": (\d+)$", submitted.stdout, re.MULTILINE)
    kills.wait_until(lambda: [record["status"] for record in records_in(results)] == ["ok", "started"], 400)
    before = {path: path.read_bytes() for path in results.glob("here/*.json") if '"status": "ok"' in path.read_text()}
    assert completed("scontrol", "requeue", job, variables=slurm).returncode == 0
    # slurmd starts no job in the second in which it has ended it.
    time.sleep(2)

    def is_completed():
        # Else Slurm would wait for two minutes.
        completed("scontrol", "update", f"JobId={job}", "StartTime=now", variables=slurm)
        return "JobState=COMPLETED" in completed("scontrol", "show", "job", job, variables=slurm).stdout

    kills.wait_until(is_completed, 300)
    outcomes = [(record["status"], record["num_ranks"], record["num_nodes"], record["launcher"]) for record in records_in(results)]
    assert outcomes == [("ok", 2, 2, "srun")] * 2, (tmp_path / "out").read_text()
    assert len(list(results.glob("here/*.matrix"))) == 1
    assert {path: path.read_bytes() for path in before} == before
    assert "there is no matrix to resume" in (tmp_path / "out").read_text()


def test_the_end_of_an_allocation_is_known(slurm):
    ask = "from launch.launchers import batch_systems; print(batch_systems.end_time())"
    done = completed("salloc", "--quiet", "-N1", "--time=5", BIN / "python", "-c", ask, variables=slurm)
    assert time.time() + 200 < float(done.stdout) < time.time() + 301, done.stderr


def test_a_matrix_that_is_killed_leaves_no_rank_on_its_nodes(slurm, light_checkout, tmp_path):
    options = ("--launcher", "srun", "--ranks-per-node", "1", "--epochs", "20000")
    with kills.allocation(slurm) as variables:
        matrix = kills.start(light_checkout, tmp_path, *options, backends="light", variables=variables)
        kills.wait_until_training(tmp_path)
        assert len(kills.ranks_of(tmp_path)) > 2
        matrix.kill()
        matrix.wait()
        kills.wait_until(lambda: not kills.ranks_of(tmp_path) and not left_over(light_checkout), 60)
        assert [record["status"] for record in records_in(tmp_path)] == ["started"]


def test_an_srun_that_is_asked_to_end_ends_the_ranks_of_all_nodes(slurm, tmp_path):
    """What ends those on other nodes, where the supervisor cannot reach them; here both nodes are this machine."""
    with kills.allocation(slurm) as variables:
        command = ["srun", "-N2", "-n2", "--mpi=none", "sleep", "300"]
        srun = subprocess.Popen(command, env=environ() | slurm | variables | {supervisor.MARK: str(tmp_path)})
        ranks = []
        limit = time.monotonic() + 30
        while len(ranks) < 2 and time.monotonic() < limit:
            ranks = [pid for pid in supervisor.processes_of(str(tmp_path)) if psutil.Process(pid).name() == "sleep"]
            time.sleep(0.1)
        assert len(ranks) == 2
        srun.terminate()
        gone, left = psutil.wait_procs([psutil.Process(pid) for pid in ranks], timeout=processes.GRACE_SECONDS)
        srun.wait(timeout=30)
        assert (len(gone), left) == (2, [])

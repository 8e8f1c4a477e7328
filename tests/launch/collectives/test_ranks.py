"""Real ranks: every library that runs here, under each kind of start, and what becomes of a wrong result and of a hang."""

import json
import signal
import subprocess

import psutil
import pytest

from common.cost.collectives import COLLECTIVES
from tests.support.running import BIN, ROOT, completed, environ

pytestmark = pytest.mark.matrix
SMALL = ("-b", "8K", "-e", "32K", "--repeats", "2")
PYTHON = (BIN / "python", "-m", "launch.collectives")
FAULTY = (BIN / "mpiexec", "-n", 2, BIN / "python", "-m", "tests.support.fault_injection", "collectives")
# Of the collectives with data, the halves that a library has: out of place, in place.
HALVES = {
    "mpi": {**dict.fromkeys(["all_reduce", "all_gather", "reduce_scatter"], (True, True)), "broadcast": (False, True),
            **dict.fromkeys(["all_to_all", "send_recv"], (True, False))},
    "gloo": {**dict.fromkeys(["all_reduce", "broadcast"], (False, True)),
             **dict.fromkeys(["all_gather", "reduce_scatter", "all_to_all", "send_recv"], (True, False))},
    "horovod_torch": {**dict.fromkeys(["all_reduce", "broadcast"], (True, True)),
                      **dict.fromkeys(["all_gather", "reduce_scatter", "all_to_all"], (True, False))},
}  # fmt: skip


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Returns (output, folder) of a measurement of everything at three sizes by two ranks, which it starts itself."""
    folder = tmp_path_factory.mktemp("collectives")
    done = completed(*PYTHON, "--ranks", 2, "--machine", "here", *SMALL, "--json", folder / "out.json")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, folder


def test_every_library_has_its_collectives_and_all_results_are_right(measured):
    measurements = json.loads((measured[1] / "out.json").read_text())["measurements"]
    assert {measurement["num_wrong"] for measurement in measurements} == {0}
    seen = {}
    for measurement in measurements:
        key = measurement["library"], measurement["collective"], measurement["in_place"]
        seen.setdefault(key, []).append(measurement["size_bytes"])
        assert len(measurement["seconds"]) == 2
        assert min(measurement["seconds"]) > 0
    barriers = {(library, "barrier", False): [0] for library in HALVES}
    expected = {
        (library, name, in_place): [8192, 16384, 32768]
        for library, halves in HALVES.items() for name, has in halves.items() for in_place in (False, True) if has[in_place]
    }  # fmt: skip
    assert seen == expected | barriers


def test_the_table_says_what_is_skipped_and_why(measured):
    output, _ = measured
    assert "# skipping nccl: this PyTorch has no CUDA" in output
    assert "skipping send_recv over horovod_torch: it has no point to point" in output
    assert output.count("# Out of bounds values : 0 OK") == 3 * len(COLLECTIVES) - 1
    assert output.count("# Avg bus bandwidth") == 3 * (len(COLLECTIVES) - 1) - 1
    rows = [line.split() for line in output.splitlines() if line and not line.startswith("#")]
    assert {len(row) for row in rows} == {18}


def test_the_file_agrees(measured):
    output, folder = measured
    document = json.loads((folder / "out.json").read_text())
    assert (document["machine"], document["num_ranks"], document["num_nodes"]) == ("here", 2, 1)
    assert "MPICH" in document["versions"]["mpi"]
    assert [copy["size_bytes"] for copy in document["memory_copy"]] == [8192, 16384, 32768]
    assert len(document["fits"]) == sum(len(halves) for halves in HALVES.values())
    assert all(fit["regimes"][0]["alpha_seconds"] >= 0 for fit in document["fits"])
    assert str(folder / "out.json") in output


def test_a_wrong_result_is_counted_and_ends_with_exit_status_1(tmp_path):
    options = ("--libraries", "mpi", "--collectives", "all_reduce,broadcast", "--json", tmp_path / "out.json")
    done = completed(*FAULTY, "wrong_all_reduce", *SMALL, *options)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "# Out of bounds values : 3 FAILED" in done.stdout
    measurements = json.loads((tmp_path / "out.json").read_text())["measurements"]
    wrong = {(measurement["collective"], measurement["in_place"]): measurement["num_wrong"] for measurement in measurements}
    assert wrong == {("all_reduce", False): 0, ("all_reduce", True): 1, ("broadcast", True): 0}


def test_a_hang_is_reported_within_the_limit_with_its_place():
    options = ("--libraries", "mpi", "--collectives", "all_reduce", "-b", 32, "-e", 64, "--watchdog-timeout", 4)
    done = completed(*FAULTY, "hang_in_all_reduce", *options)
    assert done.returncode != 0
    assert "hung for 4 s in all_reduce of 64 bytes over mpi (--watchdog-timeout)" in done.stderr
    assert "          32             8     float     sum" in done.stdout


def test_under_torchrun_gloo_runs_without_mpi():
    options = ("--collectives", "all_reduce", "-e", "64", "--repeats", "1", "--libraries", "mpi,gloo")
    done = completed(BIN / "torchrun", "--nproc-per-node=2", *PYTHON[1:], *options)
    assert done.returncode == 0, done.stdout + done.stderr
    skipped = "# skipping mpi: it needs an MPI launcher"
    for text in ("# 2 ranks on 1 node, 8 B to 64 B", skipped, "all_reduce over gloo", "# Out of bounds values : 0 OK"):
        assert text in done.stdout


def test_ctrl_c_ends_all_ranks():
    # A shell in the background may have left SIGINT ignored, which children inherit.
    command = [*PYTHON, "--libraries", "mpi", "--collectives", "all_reduce", "-e", "64K", "--repeats", "100"]
    process = subprocess.Popen(command, cwd=ROOT, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert any(line.split()[:1] == ["8"] for line in process.stdout)
    started = psutil.Process(process.pid).children(recursive=True)
    assert len(started) >= 3
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in error
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []

"""A matrix from end to end: all its runs recorded whatever becomes of them, the exit status, and no process left."""

import json
import signal
import subprocess
import time

import jsonschema
import pytest

from tests.support import made_backends
from tests.support.running import BIN, ROOT, completed, environ, left_over, records_in

pytestmark = pytest.mark.matrix

SCHEMA = json.loads((ROOT / "results" / "schema.json").read_text())


@pytest.fixture
def broken(checkout):
    """A function that puts a backend into the copied checkout which does something on rank 1 in its sixth step."""
    made = []

    def make(name, what):
        made.append(checkout / "frameworks" / f"{name}.py")
        made[-1].write_text(made_backends.text("ddp", f"if step > 5 and rank == 1: {what}"))

    yield make
    for path in made:
        path.unlink()


def start(checkout, *arguments):
    return subprocess.Popen(
        [BIN / "python", "-m", "launch.matrix", "--workloads", "cnn", *arguments],
        cwd=checkout,
        env=environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def records_of(folder):
    return {(record["backend"], record["num_ranks"]): record for record in records_in(folder)}


def test_a_crash_and_a_hang_leave_the_others_their_records_and_no_process(checkout, tmp_path, broken):
    broken("crash", "raise RuntimeError('rank 1 has had enough')")
    broken("hang", "__import__('time').sleep(1000)")
    broken("killed", "__import__('os').kill(__import__('os').getpid(), 9)")
    matrix = start(
        checkout, "2", "--backends", "crash,hang,killed,ddp", "--epochs", "2", "--no-stop-at-target", "--time-limit", "45",
        "--batch-size", "32", "--results", str(tmp_path), "--machine", "here",
    )  # fmt: skip
    output, _ = matrix.communicate(timeout=300)
    assert matrix.returncode == 1, output
    assert left_over(checkout) == []
    found = records_of(tmp_path)
    for record in found.values():
        jsonschema.validate(record, SCHEMA)
    assert {key: record["status"] for key, record in found.items()} == {
        ("crash", 2): "failed", ("hang", 2): "timeout", ("killed", 2): "failed", ("ddp", 2): "ok",
    }  # fmt: skip
    assert found["crash", 2]["error"] == "rank 1: in step 6/22 of epoch 1: RuntimeError: rank 1 has had enough"
    assert any("Traceback" in line for line in found["crash", 2]["output_tail"])
    assert "time limit of 45 s" in found["hang", 2]["error"]
    assert found["killed", 2]["error"].startswith("rank 1 was killed by SIGKILL")
    ok = found["ddp", 2]
    assert (ok["num_ranks"], ok["num_nodes"], ok["launcher"], ok["in_sync"]) == (2, 1, "mpich", True)
    assert len(ok["losses"]) == len(ok["step_seconds"]) == 2 * (ok["samples_per_epoch"] // 64)
    assert 0 <= ok["launch_seconds"] < 30
    assert (ok["settings"]["device"], ok["environment"]["device"], ok["environment"]["gpu"]) == ("cpu", "cpu", None)
    assert len(ok["environment"]["cores_of_rank_0"]) == 1
    assert len(ok["peak_memory_bytes_by_rank"]) == len(ok["step_breakdown"]["communication_exposed_seconds"]) == 2
    assert ok["num_turns"] >= 2
    assert ok["turns_of_others_seconds"] > 0
    assert "timeout" in output
    assert "not reached" in output
    assert list(tmp_path.glob("here/*.part")) == []


@pytest.mark.long
def test_every_backend_completes_both_workloads_on_more_ranks_than_cores(checkout, tmp_path):
    """The command of the README at 4 ranks: ranks that leave far apart end no completed run."""
    matrix = (checkout / "launch" / "matrix.sh", "4", "--epochs", "1", "--no-stop-at-target", "--results", tmp_path, "--machine", "here")
    done = completed(*matrix, cwd=checkout, seconds=900)
    assert done.returncode == 0, done.stdout + done.stderr
    records = records_in(tmp_path)
    assert {record["workload"] for record in records} == {"cnn", "transformer"}
    assert len(records) == 2 * len({record["backend"] for record in records}) > 10
    for record in records:
        assert (record["status"], record["launcher_error"], bool(record["step_breakdown"])) == ("ok", None, True)
    assert left_over(checkout) == []


def wait_until_ended(checkout):
    limit = time.monotonic() + 60
    while left_over(checkout) and time.monotonic() < limit:
        time.sleep(0.1)
    assert left_over(checkout) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_the_runs_side_by_side_and_leaves_none_stopped(number, checkout, tmp_path):
    matrix = start(
        checkout, "2", "--backends", "ddp,horovod_torch", "--epochs", "500", "--no-stop-at-target", "--results", str(tmp_path), "--machine",
        "here",
    )  # fmt: skip
    limit = time.monotonic() + 120
    # A record has them when its run is ready; one of the two has stopped then.
    while [bool(record["pids_by_rank"]) for record in records_of(tmp_path).values()] != [True] * 2 and time.monotonic() < limit:
        time.sleep(0.2)
    assert len(left_over(checkout)) > 4
    matrix.send_signal(number)
    try:
        output, _ = matrix.communicate(timeout=60)
    finally:
        matrix.terminate()
    if number == signal.SIGKILL:
        # Nobody is left to complete the records, but what supervises the runs ends them.
        wait_until_ended(checkout)
        assert {record["status"] for record in records_of(tmp_path).values()} == {"started"}
        return
    assert matrix.returncode == 130, output
    assert left_over(checkout) == []
    for record in records_of(tmp_path).values():
        assert (record["status"], record["error"]) == ("failed", "interrupted")
        jsonschema.validate(record, SCHEMA)
    (page,) = tmp_path.glob("here/*.html")
    assert "interrupted" in output
    assert "interrupted" in page.read_text()


def test_what_a_dry_run_prints_can_be_pasted(checkout, tmp_path):
    where = ("--results", str(tmp_path / "it's here"), "--machine", "here")
    dry = start(checkout, "1", "--backends", "ddp", "--epochs", "1", "--no-step-breakdown", *where, "--dry-run")
    printed, _ = dry.communicate(timeout=60)
    assert dry.returncode == 0, printed
    assert list(tmp_path.iterdir()) == []
    pasted = completed("bash", "-c", printed, cwd=checkout)
    assert pasted.returncode == 0, pasted.stderr
    assert records_of(tmp_path / "it's here")["ddp", 1]["status"] == "ok"

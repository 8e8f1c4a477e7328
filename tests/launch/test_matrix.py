"""A matrix from end to end: all its runs recorded whatever becomes of them, the exit status, and no process left."""

import json
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from common.declarations import Backend, declared
from common.record import files
from tests.support import kills
from tests.support.running import FEW_STEPS, LIGHT, completed, left_over, matrix, records_in, with_backends

pytestmark = pytest.mark.matrix

# As job scripts set it, for programs of one library.
BOUND = {"OMP_PLACES": "threads", "OMP_PROC_BIND": "spread"}
# Ranks of each framework.
RANKS = ("ddp", "horovod_tf")


# Another backend that does something more where it reports a step.
MADE = """
import os, signal

from common.declarations import Backend, Bounds, Setting
from common.training.program import main
from frameworks import {backend}

BACKEND = {declaration}


class Trainer({backend}.Trainer):
    def train_epoch(self, batches, observe):
        def observed(loss, losses=[]):
            losses.append(loss)
            rank, step = self.ranks.rank, len(losses)
            {statement}
            observe(loss)

        super().train_epoch(batches, observed)


if __name__ == "__main__":
    main(Trainer, __file__)
"""
# What rank 1 does in its fifth step.
OF_RANK_1 = {
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "raised": "raise RuntimeError('rank 1 has had enough')",
    "without_proxy": "os.kill(os.getppid(), signal.SIGKILL)",
}


def made(backend, statement, declaration="Backend()"):
    """The file of a backend. The statement, in one line, runs where a step is computed and communicated, and not reported yet.

    It may use `rank`, and `step`, which is the number of the step in its epoch, from 1.
    """
    return MADE.format(backend=backend, statement=statement, declaration=declaration)


def faulty(backend, fault):
    """The file of a backend with a fault, which has the variants that the backend has."""
    fields = [f"{field}={value!r}" for field, value in declared()[backend]._asdict().items() if value != Backend._field_defaults[field]]
    return made(backend, in_step_5(fault), f"Backend({', '.join(fields)})")


def in_step_5(fault):
    return f"if step == 5 and rank == 1: {OF_RANK_1[fault]}"


# Longer than the first step takes, which is compiled, on cores that others use too.
WATCHDOG_SECONDS = 15


def test_a_crash_killed_and_stopped_ranks_and_a_killed_proxy_leave_the_others_their_records_and_no_process(checkout, tmp_path):
    faults = {"killed_horovod": ("horovod_torch", "killed"), "stopped_horovod": ("horovod_torch", "stopped")}
    # Of a run without its proxy the launcher and the matrix alone make an end.
    of_light = {fault: made("light", in_step_5(fault)) for fault in ("raised", "without_proxy")}
    texts = LIGHT | of_light | {name: faulty(*fault) for name, fault in faults.items()}
    failing = ["raised", "killed_horovod@gloo", "stopped_horovod", "without_proxy"]
    settings = ("--workloads", "cnn", "--epochs", "2", "--no-stop-at-target", "--batch-size", "32", "--watchdog-timeout", WATCHDOG_SECONDS)
    with with_backends(checkout, texts):
        done = matrix(checkout, tmp_path, "2", "--backends", ",".join([*failing, "light"]), *settings, variables=BOUND)
    assert done.returncode == 1, done.stdout + done.stderr
    assert left_over(checkout) == []
    record_of_backend = {record["backend"]: record for record in records_in(tmp_path)}
    for record in record_of_backend.values():
        files.adapter().validate_json(json.dumps(record))
    statuses = {backend: record["status"] for backend, record in record_of_backend.items()}
    assert statuses == dict.fromkeys(failing, "failed") | {"light": "ok"}
    assert record_of_backend["raised"]["error"] == "rank 1: in step 5/12 of epoch 1: RuntimeError: rank 1 has had enough"
    assert any("Traceback" in line for line in record_of_backend["raised"]["output_tail"])
    # Of Horovod over Gloo rank 0 has the server at which the ranks meet.
    record = record_of_backend["killed_horovod@gloo"]
    assert (record["error"][:28], record["transport"]) == ("rank 1 was killed by SIGKILL", "gloo")
    record = record_of_backend["stopped_horovod"]
    assert record["error"].startswith("rank 1 hung without a report")
    assert f"step 6/12 of epoch 1 for {WATCHDOG_SECONDS} s" in record["error"]
    assert any("train_epoch" in line for line in record["output_tail"])
    # Its ranks are stopped, and end with it, or run.
    error = record_of_backend["without_proxy"]["error"]
    assert re.search(r"^hydra_pmi_proxy \(pid \d+\)|^ended with exit status 255, since its hydra_pmi_proxy", error)
    record = record_of_backend["light"]
    assert (record["num_ranks"], record["num_nodes"], record["launcher"], record["in_sync"]) == (2, 1, "mpich", True)
    assert len(record["losses"]) == len(record["step_seconds"]) == 2 * (record["samples_per_epoch"] // 64)
    assert 0 <= record["launch_seconds"] < 30
    assert record["environment"]["cores_by_rank"] == [[core] for core in sorted(os.sched_getaffinity(0))[:2]]
    assert record["environment"]["ignored_variables"] == BOUND
    assert done.stderr.count("ignored, since a run binds its ranks and sets their threads: OMP_PLACES=threads, OMP_PROC_BIND=spread") == 1
    assert len(record["peak_memory_bytes_by_rank"]) == 2
    assert record["num_turns"] >= 2
    assert record["turns_of_others_seconds"] > 0
    assert "not reached" in done.stdout
    assert list(tmp_path.glob("here/*.part")) == []


@pytest.mark.long
def test_backends_of_both_frameworks_complete_on_more_ranks_than_cores(checkout, tmp_path):
    """The command of the README at 3 ranks: ranks that leave far apart end no completed run."""
    shorter = ("--workloads", "cnn", "--epochs", "1", "--no-stop-at-target", "--backends", ",".join(RANKS))
    command = (checkout / "launch" / "matrix.sh", "3", *shorter, "--results", tmp_path, "--machine", "here")
    done = completed(*command, cwd=checkout, seconds=900)
    assert done.returncode == 0, done.stdout + done.stderr
    records = records_in(tmp_path)
    assert {record["backend"] for record in records} == set(RANKS)
    for record in records:
        assert (record["status"], record["launcher_error"], bool(record["step_breakdown"])) == ("ok", None, True)
        assert record["share_of_peak"] < 1 >= record["framework_product_share"]
    # Side by side all train the same part of an epoch in a turn.
    assert len({record["num_turns"] for record in records}) == 1
    assert left_over(checkout) == []


# test_slurm.py kills one under srun.
@pytest.mark.parametrize(
    ("number", "supervisors_too", "launcher", "backends"),
    [
        (signal.SIGINT, False, "mpich", "light"),
        (signal.SIGKILL, False, "mpich", "light,light_too"),
        pytest.param(signal.SIGKILL, True, "torchrun", "ddp", marks=pytest.mark.long),
        pytest.param(signal.SIGKILL, True, "mpich", "ddp,horovod_torch", marks=pytest.mark.long),
    ],
)
def test_a_signal_ends_runs_alone_and_side_by_side_and_leaves_no_process_and_no_file(
    number, supervisors_too, launcher, backends, light_checkout, tmp_path
):
    num_runs = len(backends.split(","))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    arguments = ("--epochs", "20000", "--launcher", launcher)
    with with_backends(light_checkout, {"light_too": LIGHT["light"]}):
        process = kills.start(light_checkout, tmp_path, *arguments, backends=backends, variables={"TMPDIR": str(temporary)})
        kills.wait_until_training(tmp_path, num_runs)
    assert len(left_over(light_checkout)) > 2 * num_runs
    shared_memory = kills.shared_memory_of(kills.ranks_of(tmp_path))
    assert any(path.name.startswith("mpich_shm_") for path in shared_memory) == (launcher == "mpich")
    for child in psutil.Process(process.pid).children() if supervisors_too else []:
        if "supervisor.py" in " ".join(child.cmdline()):
            child.kill()
    process.send_signal(number)
    try:
        output, _ = process.communicate(timeout=60)
    finally:
        process.terminate()
    # Nobody is left to complete the records where the matrix was killed, but what supervises the runs ends them, or else the kernel.
    kills.wait_until(lambda: not left_over(light_checkout), 60 if number == signal.SIGKILL else 0)
    if not supervisors_too:
        assert not any(path.exists() for path in shared_memory)
        assert list(temporary.iterdir()) == []
    if number == signal.SIGKILL:
        # Only a run that takes no turns has ranks that are not stopped, which can record their end.
        ends = [("started", None)] * num_runs if num_runs > 1 else [("failed", "ended by SIGTERM (Terminated)")]
        assert [(record["status"], record["error"]) for record in records_in(tmp_path)] == ends
        for path in shared_memory:
            path.unlink(missing_ok=True)
        return
    assert process.returncode == 130, output
    for record in records_in(tmp_path):
        assert (record["status"], record["error"]) == ("failed", "interrupted")
        files.adapter().validate_json(json.dumps(record))
    (page,) = tmp_path.glob("here/*.html")
    assert "interrupted" in output
    assert "interrupted" in page.read_text()


@pytest.mark.long
def test_matrices_at_once_in_folders_of_their_own_end_with_their_own_records(checkout, tmp_path):
    arguments = ("1", "--backends", "single", "--workloads", "cnn", "--epochs", "1", "--no-step-breakdown", "--share-machine")
    folders = [tmp_path / str(number) for number in range(4)]
    with ThreadPoolExecutor(len(folders)) as pool:
        all_done = list(pool.map(lambda folder: matrix(checkout, folder, *arguments, variables=FEW_STEPS), folders))
    for done, folder in zip(all_done, folders, strict=True):
        assert done.returncode == 0, done.stderr
        assert [(record["status"], record["seed"]) for record in records_in(folder)] == [("ok", 1)]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk, and so takes root")
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        pytest.param("import shutil; shutil.rmtree({folder!r})", "No such file or directory", marks=pytest.mark.long),
        ("import subprocess; subprocess.run(['dd', 'if=/dev/zero', 'of={folder}/full', 'bs=1k'], check=False)", "No space left on device"),
    ],
)
def test_a_matrix_whose_results_are_deleted_or_full_names_the_runs_whose_record_is_not_written(statement, reason, light_checkout, tmp_path):
    (tmp_path / "here").mkdir()
    text = made("light", f"if step == 2: {statement.format(folder=str(tmp_path / 'here'))}")
    # The mount is there for the matrix alone.
    around = ("unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=300k tmpfs {tmp_path} && exec "$@"', "sh")
    with with_backends(light_checkout, {"breaking": text}):
        settings = ("--workloads", "cnn", "--epochs", "1", "--no-stop-at-target", "--no-step-breakdown")
        done = matrix(light_checkout, tmp_path, "1", "--backends", "breaking", *settings, around=around)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"its record could not be written ({reason})" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_what_a_dry_run_prints_can_be_pasted(light_checkout, tmp_path):
    folder = tmp_path / "it's here"
    dry = matrix(light_checkout, folder, "1", "--workloads", "cnn", "--backends", "light", "--epochs", "1", "--dry-run")
    assert (dry.returncode, list(tmp_path.iterdir())) == (0, []), dry.stderr
    done = completed("bash", "-c", dry.stdout, cwd=light_checkout, variables=FEW_STEPS)
    assert done.returncode == 0, done.stderr
    (record,) = records_in(folder)
    assert (record["backend"], record["num_ranks"], record["status"]) == ("light", 1, "ok")

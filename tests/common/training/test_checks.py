"""What must be equal on all ranks, finite numbers, and the cores on which the threads of all ranks run."""

import dataclasses
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from common.config import Settings
from common.declarations import ROOT
from common.errors import Diverged, RunError
from common.ranks.launcher_variables import values_by_rank
from common.training import checks
from tests.common.training.test_checkpoints import ABOUT
from tests.common.training.test_loop import new_record
from tests.support.rank_0 import ON_CPU, Rank0, on_ranks
from tests.support.running import BIN, FEW_STEPS, completed


def dataset(digest):
    return SimpleNamespace(digest=digest)


EPOCHS = dataclasses.replace(Settings(), epochs=3)
COMPARISONS = [
    (checks.expect_same_data, dataset("a"), dataset("b"), "have read different data"),
    (checks.expect_same_settings, Settings(), EPOCHS, "have different settings"),
    (checks.expect_same_settings, Settings(), dataclasses.replace(Settings(), learning_rate=2.0), "have different settings"),
    (checks.expect_same_checkpoint, ABOUT, ABOUT._replace(epochs=0), "resume from different checkpoints"),
]


@pytest.mark.parametrize(("expect_same", "usual", "different", "message"), COMPARISONS)
def test_all_ranks_name_the_rank_that_has_another(expect_same, usual, different, message, monkeypatch):
    monkeypatch.setattr(checks.socket, "gethostname", lambda: "nid001")
    errors = on_ranks(3, lambda trainer: expect_same(trainer, (usual, usual, different)[trainer.ranks.rank]))
    assert {type(error) for error in errors} == {checks.OutOfSync}
    (text,) = set(map(str, errors))
    assert text.startswith(f"the ranks {message}: rank 2 (nid001) has not the same as rank 0 (nid001); ")
    assert on_ranks(3, lambda trainer: expect_same(trainer, usual)) == [None] * 3


def test_nodes_may_have_folders_and_names_of_their_own():
    there = dataclasses.replace(Settings(), data_dir="/scratch", checkpoint_dir="/scratch", machine="b", results="/r", watchdog_timeout=1.0)
    assert on_ranks(2, lambda trainer: checks.expect_same_settings(trainer, (Settings(), there)[trainer.ranks.rank])) == [None] * 2


@pytest.mark.parametrize(
    ("digests", "named"),
    [
        ("ab", "rank 1 (n1) has not the same as rank 0 (n0)"),
        ("baa", "rank 0 (n0) has not the same as rank 1 (n1)"),
        ("abab", "rank 1 (n1), rank 3 (n3) have not the same as rank 0 (n0)"),
        ("a" * 20 + "b" * 10, "rank 26 (n26), rank 27 (n27), 2 more have not the same as rank 0 (n0)"),
    ],
)
def test_ranks_are_named_that_differ_from_most(digests, named):
    assert checks.describe_different(digests, [f"n{rank}" for rank in range(len(digests))]).endswith(named)


def compared(num_ranks, *states):
    """What comparing replicas raises on each rank, if anything, and the record of each; `states` are given one after the other by rank."""
    records = [new_record() for _ in range(num_ranks)]

    def compare(trainer):
        for number, state_of in enumerate(states):
            trainer.state = lambda with_optimizer_state, state_of=state_of: state_of(trainer.ranks.rank)
            checks.compare_replicas(trainer, records[trainer.ranks.rank], f"after epoch {number}")

    return on_ranks(num_ranks, compare), records


def test_replicas_that_differ_end_the_run():
    errors, records = compared(2, lambda rank: {"weight": np.full(2, float(rank))})
    assert {type(error) for error in errors} == {checks.OutOfSync}
    assert [record.in_sync for record in records] == [False, False]


def test_buffers_that_differ_are_recorded_and_do_not_end_the_run():
    states = [lambda rank, differ=differ: {"weight": np.zeros(2), "buffer/mean": np.full(2, rank * differ)} for differ in (0.0, 1.0, 0.0)]
    errors, records = compared(2, *states)
    assert errors == [None, None]
    assert [(record.in_sync, record.buffers_in_sync) for record in records] == [(True, False)] * 2


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_parameters_that_are_not_finite_on_one_rank_have_diverged_on_all(value):
    errors, _ = compared(2, lambda rank: {"weight": np.array([0.0, value if rank else 1.0]), "bias": np.zeros(1)})
    assert {(type(error), error.status) for error in errors} == {(Diverged, "diverged")}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_the_first_step_is_named_whose_loss_is_not_finite_on_any_rank(value):
    records_of_ranks = [new_record(), new_record()]

    def expect_finite(trainer):
        losses = np.array([1.0, 2.0, value if trainer.ranks.rank else 3.0, np.nan])
        checks.expect_finite(trainer, losses, records_of_ranks[trainer.ranks.rank], epoch=2)

    (text,) = {str(error) for error in on_ranks(2, expect_finite)}
    message = f"the loss of step 3 of epoch 2 is {value}, the first that is not finite, after the update of step 2; lower --learning-rate"
    assert text.startswith(message)
    assert records_of_ranks[0].losses[:2] == [1.0, 2.0]


NEEDS_TWO_CORES = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores")


@pytest.mark.parametrize("values", [[7, None], ["müller", ""], [{"a": [0, 47, 143]}, [1.5, 2**40]]])
def test_values_of_all_ranks_are_gathered_whatever_they_are(values):
    assert on_ranks(2, lambda trainer: values_by_rank(trainer, values[trainer.ranks.rank])) == [values] * 2


def test_a_rank_that_computes_with_other_threads_is_named():
    checks.expect_num_threads(Rank0(2, device=ON_CPU._replace(num_threads=2)), 2)
    # Where the framework does not tell.
    checks.expect_num_threads(Rank0(), 2)
    with pytest.raises(RunError, match="rank 1 computes with 4 threads, and --threads is 1"):
        checks.expect_num_threads(Rank0(4, device=ON_CPU._replace(num_threads=1)), 1)


MISPLACED = """
import os, threading
from common.ranks.binding import bind
from common.training.checks import misplaced
allowed = sorted(os.sched_getaffinity(0))
def look(which):
    done, moved = threading.Event(), threading.Event()
    def wait(cores):
        os.sched_setaffinity(0, cores)
        moved.set()
        done.wait()
    mine = set(allowed[:2]) if which == "narrow" else {allowed[0]}
    bind(mine)
    threading.Thread(target=wait, args=({"thread": {allowed[1]}}.get(which, {allowed[0]}),), daemon=True).start()
    moved.wait()
    if which in ("main", "narrow"):
        os.sched_setaffinity(0, allowed[:2] if which == "main" else allowed[1:2])
    print(which, misplaced(mine) and [allowed.index(core) for core in sorted(misplaced(mine))], flush=True)
for which in ("none", "thread", "main", "narrow"):
    if not os.fork():
        look(which)
        os._exit(0)
    os.wait()
"""


@NEEDS_TWO_CORES
def test_every_thread_is_on_the_cores_of_its_rank_and_the_main_thread_on_all_of_them():
    done = subprocess.run([sys.executable, "-c", MISPLACED], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["none None", "thread [1]", "main [0, 1]", "narrow [1]"]


def test_a_thread_on_cores_of_others_ends_the_run_on_all_ranks(monkeypatch):
    monkeypatch.setattr(checks, "misplaced", lambda cores: {0, 1} if cores == {1} else None)
    errors = on_ranks(2, lambda trainer: checks.expect_on_cores(trainer, {trainer.ranks.rank}, True))
    assert {type(error) for error in errors} == {RunError}
    (text,) = set(map(str, errors))
    assert text.startswith("rank 1 has core 1, and a thread of it may run on cores 0, 1: ")


SHORT = ("--epochs", "1", "--no-step-breakdown", "--device", "cpu", "--machine", "here", "--run-id", "run")


@NEEDS_TWO_CORES
@pytest.mark.matrix
def test_ranks_that_are_started_by_hand_have_cores_of_their_own_whatever_variables_say(tmp_path):
    variables = {"OMP_PLACES": "threads", "GOMP_CPU_AFFINITY": "0-1", "HOROVOD_THREAD_AFFINITY": "1,0", "TF_NUM_INTRAOP_THREADS": "2"}
    command = (BIN / "mpiexec", "-n", 2, BIN / "python", "-m", "frameworks.horovod_tf", *SHORT, "--results", tmp_path)
    done = completed(*command, variables=variables | FEW_STEPS)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "here" / "run.json").read_text())
    assert record["environment"]["cores_by_rank"] == [[core] for core in sorted(os.sched_getaffinity(0))[:2]]
    assert record["environment"]["ignored_variables"] == variables
    assert record["oversubscribed"] is False
    assert (done.stdout + done.stderr).count("ignored, since a run binds its ranks") == 1

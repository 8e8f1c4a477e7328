"""The cores of all ranks, as their threads have them after the warm-up."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from common.declarations import ROOT
from common.errors import RunError
from common.process.ranks import Ranks
from common.training import placement
from tests.support.rank_0 import ON_CPU, Rank0
from tests.support.running import BIN, completed, train

NEEDS_TWO_CORES = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores")
SIBLINGS = {0: 0, 1: 1, 2: 2, 3: 3, 4: 0, 5: 1, 6: 2, 7: 3}


@pytest.mark.parametrize(
    ("cores_of_ranks", "cores_per_rank", "core_of", "quota_cores", "crowded"),
    [
        ([{0}, {1}], 1, {}, None, False),
        ([{0}, {0}], 1, {}, None, True),
        ([{0}, {1}, {0}], 1, {}, None, True),
        # Not bound: all ranks may run on all cores.
        ([{0, 1}] * 2, 1, {}, None, False),
        ([{0, 1}] * 3, 1, {}, None, True),
        # A launcher has bound some of them to one core.
        ([{0, 1, 2, 3}, {0}, {0}], 1, {}, None, True),
        ([{0, 1, 2}, {3, 4, 0}], 3, {}, None, True),
        ([{0, 1, 2}, {3, 4, 5}], 3, {}, None, False),
        ([{0}], 2, {}, None, True),
        # Two hardware threads of one core.
        ([{0}, {4}], 1, SIBLINGS, None, True),
        ([{0, 4}, {1, 5}], 1, SIBLINGS, None, False),
        ([{0, 4}], 2, SIBLINGS, None, True),
        ([{0}, {1}], 1, {}, 2.0, False),
        ([{0}, {1}], 1, {}, 1.5, True),
        ([{0, 1}], 2, {}, 1.5, True),
    ],
)
def test_ranks_are_oversubscribed_where_they_need_more_cores_than_they_run_on(
    cores_of_ranks, cores_per_rank, core_of, quota_cores, crowded
):
    assert placement.oversubscribed(cores_of_ranks, cores_per_rank, core_of, quota_cores) is crowded


def test_cores_are_gathered_whatever_their_numbers():
    # The second rank has cores 1, 48 and 143.
    two_ranks = Rank0(3, 2, 1, 1 << 47)
    assert placement.gathered(two_ranks, {0, 47, 50}) == [[0, 47, 50], [1, 48, 143]]


@pytest.mark.parametrize("host", ["nid001240", "n" * 63, "müller"])
def test_the_hosts_of_ranks_are_gathered(host):
    assert placement.host_by_rank(Rank0(), host) == [host]
    of_ranks = np.zeros((2, placement.HOST_BYTES))
    of_ranks[1, :2] = list(b"n2")
    trainer = SimpleNamespace(ranks=Ranks(0, 2, 0, 1), sum=lambda values: values + of_ranks.ravel())
    assert placement.host_by_rank(trainer, host) == [host, "n2"]


def test_a_rank_that_computes_with_other_threads_is_named():
    placement.expect_num_threads(Rank0(2, device=ON_CPU._replace(num_threads=2)), 2)
    # Where the framework does not tell.
    placement.expect_num_threads(Rank0(), 2)
    with pytest.raises(RunError, match="rank 1 computes with 4 threads, and --threads is 1"):
        placement.expect_num_threads(Rank0(4, device=ON_CPU._replace(num_threads=1)), 1)


MISPLACED = """
import os, sys, threading
from common.process.binding import bind
from common.training.placement import misplaced
allowed, which = sorted(os.sched_getaffinity(0)), sys.argv[1]
done, moved = threading.Event(), threading.Event()
mine = set(allowed[:2]) if which == "narrow" else {allowed[0]}
def wait(cores):
    os.sched_setaffinity(0, cores)
    moved.set()
    done.wait()
bind(mine)
threading.Thread(target=wait, args=({"thread": {allowed[1]}}.get(which, {allowed[0]}),), daemon=True).start()
moved.wait()
if which == "main":
    os.sched_setaffinity(0, allowed[:2])
if which == "narrow":
    os.sched_setaffinity(0, allowed[1:2])
print(misplaced(mine) and [allowed.index(core) for core in sorted(misplaced(mine))])
done.set()
"""


@NEEDS_TWO_CORES
@pytest.mark.parametrize(("which", "cores"), [("none", "None"), ("thread", "[1]"), ("main", "[0, 1]"), ("narrow", "[1]")])
def test_every_thread_is_on_the_cores_of_its_rank_and_the_main_thread_on_all_of_them(which, cores):
    done = subprocess.run([sys.executable, "-c", MISPLACED, which], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == cores


SHORT = ("--epochs", "1", "--no-step-breakdown", "--device", "cpu", "--machine", "here", "--run-id", "run")


@NEEDS_TWO_CORES
@pytest.mark.matrix
@pytest.mark.parametrize(
    ("backend", "variables"),
    [
        ("ddp", {"OMP_PLACES": "threads", "OMP_PROC_BIND": "spread", "TF_NUM_INTRAOP_THREADS": "2"}),
        ("horovod_tf", {"GOMP_CPU_AFFINITY": "0-1", "HOROVOD_THREAD_AFFINITY": "1,0"}),
    ],
)
def test_ranks_that_are_started_by_hand_have_cores_of_their_own_whatever_variables_say(backend, variables, tmp_path):
    command = (BIN / "mpiexec", "-n", 2, BIN / "python", "-m", f"frameworks.{backend}", *SHORT, "--results", tmp_path)
    done = completed(*command, variables=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "here" / "run.json").read_text())
    assert record["environment"]["cores_by_rank"] == [[core] for core in sorted(os.sched_getaffinity(0))[:2]]
    assert record["environment"]["ignored_variables"] == variables
    assert record["oversubscribed"] is False
    assert (done.stdout + done.stderr).count("ignored, since a run binds its ranks") == 1


@NEEDS_TWO_CORES
@pytest.mark.matrix
def test_a_run_with_a_thread_on_cores_of_others_has_failed(tmp_path):
    status, record, _ = train("ddp", 2, tmp_path, "--epochs", "1", fault="a_thread_on_all_cores")
    first, second = sorted(os.sched_getaffinity(0))[:2]
    assert (status, record["status"]) == (1, "failed")
    assert record["error"].startswith(f"rank 1 has core {second}, and a thread of it may run on cores {first}, {second}: ")

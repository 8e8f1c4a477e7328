"""The cores and the GPU of a rank, and oversubscription."""

import contextlib
import dataclasses
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from common.backends import ROOT
from common.config import Settings
from common.process.binding import (
    GPU_ORDER_VARIABLE,
    VISIBLE_GPUS,
    core_of_threads,
    cores_for,
    gpu_for,
    num_cores,
    numa_nodes,
    oversubscribed,
)
from common.process.ranks import Ranks
from common.training import program
from tests.support.mistakes import refused

# Four cores with two threads each, numbered as Linux does on most machines, and as on some.
SIBLINGS = {0: 0, 1: 1, 2: 2, 3: 3, 4: 0, 5: 1, 6: 2, 7: 3}
NEIGHBOURS = {0: 0, 1: 0, 2: 2, 3: 2, 4: 4, 5: 4, 6: 6, 7: 6}


@pytest.mark.parametrize(
    ("core_of", "allowed", "threads", "used_cores"),
    [
        ({}, range(3), 1, [{0}, {1}, {2}, {0}]),
        ({}, range(4), 2, [{0, 1}, {2, 3}, {0, 1}]),
        ({}, range(5), 3, [{0, 1, 2}, {3, 4, 0}]),
        ({}, {7, 5, 6}, 1, [{5}, {6}]),
        # The launcher has bound the rank: the local rank does not matter.
        ({}, {4, 5}, 2, [{4, 5}, {4, 5}]),
        ({}, {4}, 2, [{4}, {4}]),
        (SIBLINGS, range(8), 1, [{0}, {1}, {2}, {3}, {4}, {5}]),
        (NEIGHBOURS, range(8), 1, [{0}, {2}, {4}, {6}, {1}, {3}]),
        (NEIGHBOURS, range(8), 2, [{0, 2}, {4, 6}, {1, 3}]),
        (NEIGHBOURS, {2, 3, 4}, 1, [{2}, {4}, {3}, {2}]),
    ],
)
def test_each_rank_gets_the_next_cores_and_a_physical_one_before_any_gets_a_second_thread(core_of, allowed, threads, used_cores):
    assert [cores_for(set(allowed), rank, threads, core_of) for rank in range(len(used_cores))] == used_cores


@pytest.mark.parametrize(
    ("allowed", "local_size", "threads", "total", "core_of", "crowded"),
    [
        (range(4), 4, 1, 4, {}, False),
        (range(4), 5, 1, 4, {}, True),
        (range(4), 3, 2, 4, {}, True),
        (range(1), 2, 1, 1, {}, True),
        # A container or a batch system gives fewer cores than the node has.
        (range(4), 4, 1, 64, {}, False),
        (range(4), 5, 1, 64, {}, True),
        # Bound by the launcher, each rank to cores of its own: then the node's cores count.
        (range(1), 8, 1, 8, {}, False),
        (range(1), 9, 1, 8, {}, True),
        (range(2), 4, 2, 8, {}, False),
        # Eight hardware threads are four cores.
        (range(8), 4, 1, 4, SIBLINGS, False),
        (range(8), 5, 1, 4, SIBLINGS, True),
        # Bound by the launcher to both threads of one core.
        ({1, 5}, 4, 1, 4, SIBLINGS, False),
        ({1, 5}, 5, 1, 4, SIBLINGS, True),
        # The launcher has counted 16 hardware threads for a rank of 16 cores.
        ({*range(8), *range(64, 72)}, 4, 16, 64, {thread: thread % 64 for thread in range(128)}, True),
        ({*range(16), *range(64, 80)}, 4, 16, 64, {thread: thread % 64 for thread in range(128)}, False),
    ],
)
def test_ranks_are_oversubscribed_when_they_need_more_cores_than_there_are(allowed, local_size, threads, total, core_of, crowded):
    assert oversubscribed(set(allowed), local_size, threads, total, core_of) is crowded
    assert oversubscribed(set(allowed), local_size, threads, total, core_of, local_size * threads) is crowded
    assert oversubscribed(set(allowed), local_size, threads, total, core_of, local_size * threads - 0.5)


@pytest.mark.parametrize(
    ("lists", "core_of", "num"),
    [
        (["0,2", "1,3", "0,2", "1,3"], {0: 0, 1: 1, 2: 0, 3: 1}, 2),
        (["0-1", "0-1", "2-3", "2-3"], {0: 0, 1: 0, 2: 2, 3: 2}, 2),
        # Where Linux does not tell, each thread is a core.
        ([], {}, 4),
    ],
)
def test_siblings_are_read_from_linux(lists, core_of, num, tmp_path):
    for number, text in enumerate(lists):
        path = tmp_path / f"cpu{number}" / "topology"
        path.mkdir(parents=True)
        (path / "thread_siblings_list").write_text(f"{text}\n")
    assert core_of_threads(tmp_path) == core_of
    assert num_cores(range(4), core_of) == num


@pytest.mark.parametrize(("settings", "num_cores_of_rank"), [(Settings(), 1), (Settings(threads=2), 2), (Settings(cores_per_rank=3), 3)])
def test_a_rank_gets_its_cores_from_those_of_this_process(settings, num_cores_of_rank):
    allowed, record = os.sched_getaffinity(0), SimpleNamespace(environment=SimpleNamespace())
    cores = program.choose_cores(Ranks(), settings, record)
    assert cores <= allowed
    assert len(cores) == min(num_cores_of_rank, len(allowed))
    assert program.choose_cores(Ranks(), dataclasses.replace(settings, bind=False), record) == allowed


@pytest.mark.parametrize(("threads", "nodes"), [([0], [0]), ([2, 3], [1]), ([3, 0], [0, 1]), ([1, 4], [0]), ([4], None), ([], None)])
def test_numa_nodes_are_read_from_linux(threads, nodes, tmp_path):
    for number in range(4):
        (tmp_path / f"cpu{number}" / f"node{number // 2}").mkdir(parents=True)
    (tmp_path / "cpu4").mkdir()
    assert numa_nodes(threads, tmp_path) == nodes


@pytest.mark.parametrize(
    ("num_gpus", "local_rank", "local_size", "order", "chosen", "gpu"),
    [
        (4, 0, 4, "local", None, 0), (4, 3, 4, "local", None, 3), (4, 0, 4, "reversed", None, 3), (4, 3, 4, "reversed", VISIBLE_GPUS[0], 0),
        (4, 1, 2, "reversed", None, 2), (1, 0, 1, "local", None, 0), *((1, 3, 4, "reversed", name, 0) for name in VISIBLE_GPUS),
        (4, 0, 5, "local", None, "5 ranks on a node with 4 GPUs"), (4, 4, 5, "local", VISIBLE_GPUS[0], "5 ranks on a node with 4 GPUs"),
        # The launcher has not selected one GPU per rank.
        (1, 0, 2, "local", None, "2 ranks on a node with 1 GPU;"), (1, 1, 2, "local", None, "2 ranks on a node with 1 GPU;"),
    ],
)  # fmt: skip
def test_a_rank_takes_the_gpu_of_its_local_rank_and_shares_none_unless_it_may(
    num_gpus, local_rank, local_size, order, chosen, gpu, monkeypatch
):
    monkeypatch.setattr(os, "environ", {GPU_ORDER_VARIABLE: order} | ({chosen: "2"} if chosen else {}))
    ranks = Ranks(local_rank, local_size, local_rank, local_size)
    with refused(gpu) if isinstance(gpu, str) else contextlib.nullcontext():
        assert gpu_for(num_gpus, ranks) == gpu
    del os.environ[GPU_ORDER_VARIABLE]
    assert gpu_for(num_gpus, ranks, may_share=True) == local_rank % num_gpus


BIND_AND_LOOK = """
import os, sys, threading
from common.process.binding import bind
done = threading.Event()
threading.Thread(target=done.wait, daemon=True).start()
bind({int(sys.argv[1])})
later = threading.Thread(target=done.wait, daemon=True)
later.start()
print([sorted(os.sched_getaffinity(int(thread))) for thread in os.listdir("/proc/self/task")])
done.set()
"""


def test_binding_holds_for_the_threads_there_are_and_those_to_come():
    core = max(os.sched_getaffinity(0))
    done = subprocess.run([sys.executable, "-c", BIND_AND_LOOK, str(core)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([[core]] * 3)

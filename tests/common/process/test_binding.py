"""The cores of a rank, and oversubscription."""

import os
import subprocess
import sys

import pytest

from common.process.binding import cores_for, oversubscribed
from common.records import ROOT


@pytest.mark.parametrize(
    ("allowed", "local_rank", "threads", "cores"),
    [
        (range(4), 0, 1, {0}),
        (range(4), 3, 1, {3}),
        (range(4), 4, 1, {0}),
        (range(4), 1, 2, {2, 3}),
        (range(4), 2, 2, {0, 1}),
        (range(5), 1, 3, {3, 4, 0}),
        (range(2), 0, 4, {0, 1}),
        ({7, 5, 6, 4}, 1, 1, {5}),
        # The launcher has bound the rank: the local rank does not matter.
        ({6}, 3, 1, {6}),
        ({4, 5}, 2, 2, {4, 5}),
        ({4}, 1, 2, {4}),
        # More cores than threads are for all ranks of the node.
        ({4, 5, 6}, 1, 1, {5}),
    ],
)
def test_cores_of_a_rank(allowed, local_rank, threads, cores):
    assert cores_for(set(allowed), local_rank, threads) == cores


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_ranks_that_fit_share_no_core(threads):
    taken = [core for rank in range(12 // threads) for core in cores_for(range(12), rank, threads)]
    assert sorted(taken) == list(range(12))


@pytest.mark.parametrize(
    ("num_allowed", "local_size", "threads", "total", "crowded"),
    [
        (4, 4, 1, 4, False),
        (4, 5, 1, 4, True),
        (4, 2, 2, 4, False),
        (4, 3, 2, 4, True),
        (1, 1, 1, 1, False),
        (1, 2, 1, 1, True),
        # A container or a batch system gives fewer cores than the node has.
        (4, 4, 1, 64, False),
        (4, 5, 1, 64, True),
        # Bound by the launcher, each rank to cores of its own: then the node's cores count.
        (1, 8, 1, 8, False),
        (1, 9, 1, 8, True),
        (2, 4, 2, 8, False),
    ],
)
def test_ranks_are_oversubscribed_when_they_want_more_cores_than_there_are(num_allowed, local_size, threads, total, crowded):
    assert oversubscribed(set(range(num_allowed)), local_size, threads, total) is crowded


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
    found = subprocess.run([sys.executable, "-c", BIND_AND_LOOK, str(core)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str([[core]] * 3)

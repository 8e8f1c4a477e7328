"""Whether another run fits into memory beside those that are ready."""

import os
import subprocess

import numpy as np
import pynvml
import pytest

from launch.run import room
from tests.support import nvml

GIB = 2**30


@pytest.mark.parametrize(
    ("bytes_by_run", "available_bytes", "expected"),
    [
        ([], 0, True),
        ([2 * GIB], 3 * GIB, True),
        ([2 * GIB], 3 * GIB - 1, False),
        ([GIB, 4 * GIB, 2 * GIB], 5 * GIB, False),
        ([GIB, 4 * GIB, 2 * GIB], 6 * GIB, True),
        ([4 * GIB], float("inf"), True),
    ],
)
def test_one_more_as_large_as_the_largest_must_fit(bytes_by_run, available_bytes, expected, monkeypatch):
    monkeypatch.setattr(room, "on_node", lambda pids_by_run: (bytes_by_run, available_bytes))
    assert room.has_room([]) is expected


def test_the_memory_of_a_run_is_what_its_processes_that_have_not_ended_share_with_no_other():
    ended = subprocess.Popen(["true"])
    ended.wait()
    (bytes_before,), available_bytes = room.on_node([[os.getpid(), ended.pid]])
    kept = np.ones(2**24)
    assert room.on_node([[os.getpid(), ended.pid]])[0][0] - bytes_before == pytest.approx(kept.nbytes, rel=0.1)
    assert available_bytes > 0


def test_a_run_must_fit_on_each_gpu(monkeypatch):
    nvml.install(monkeypatch, nvml.Driver())
    runs = [[1], [7, 9]]
    assert room.on_gpus(runs) == [([GIB, 0], 9 * GIB), ([GIB, 3 * GIB], 4 * GIB), ([0, 0], 5 * GIB)]
    assert not room.has_room(runs)
    assert room.has_room([[1], [9]])
    # Where NVML does not tell it, the memory of GPUs is left out.
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", nvml.refuse)
    assert room.on_gpus([[1]]) == []

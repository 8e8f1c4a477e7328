"""Whether another run fits into memory beside those that are ready."""

import os
import subprocess

import numpy as np
import psutil
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


def test_the_memory_of_a_process_is_its_own():
    before = room.own_bytes(os.getpid())
    kept = np.ones(2**24)
    assert room.own_bytes(os.getpid()) - before == pytest.approx(kept.nbytes, rel=0.1)


def test_a_process_that_has_ended_has_no_memory():
    process = subprocess.Popen(["true"])
    process.wait()
    assert room.own_bytes(process.pid) == 0


def test_here_there_is_room_for_another_like_this_one():
    (own_bytes,), available_bytes = room.on_node([[os.getpid()]])
    assert 0 < own_bytes < psutil.virtual_memory().total
    assert available_bytes > 0


def test_a_run_must_fit_on_each_gpu(monkeypatch):
    nvml.install(monkeypatch, nvml.Driver())
    runs = [[1], [7, 9]]
    assert room.on_gpus(runs) == [([GIB, 0], 9 * GIB), ([GIB, 3 * GIB], 4 * GIB), ([0, 0], 5 * GIB)]
    assert not room.has_room(runs)
    assert room.has_room([[1], [9]])


def test_a_gpu_whose_memory_nvml_does_not_tell_is_left_out(monkeypatch):
    nvml.install(monkeypatch, nvml.Driver())
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", nvml.refuse)
    assert room.on_gpus([[1]]) == []

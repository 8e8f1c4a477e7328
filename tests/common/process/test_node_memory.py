"""Bytes that are free on a node and on its GPUs."""

import psutil
import pynvml

from common.process import control_groups, node_memory
from common.process.control_groups import Memory
from tests.support import nvml


def test_the_smallest_room_of_the_node_and_its_control_groups_counts(monkeypatch):
    assert 0 < node_memory.available() <= psutil.virtual_memory().total
    monkeypatch.setattr(control_groups, "memories", lambda: [Memory(1000, 300, 200), Memory(950, 945, 0), Memory(1 << 62, 0, 0)])
    assert (node_memory.available(), node_memory.total()) == (5, 950)


def test_the_gpu_with_most_free_memory_counts_where_nvml_tells_of_one(monkeypatch):
    nvml.install(monkeypatch, nvml.Driver())
    assert node_memory.available_on_gpu() == 9 * nvml.GIB
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", nvml.refuse)
    assert node_memory.available_on_gpu() == float("inf")
    nvml.install(monkeypatch, nvml.Driver())
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 0)
    assert node_memory.available_on_gpu() == float("inf")

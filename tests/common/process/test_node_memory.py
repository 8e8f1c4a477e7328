"""Bytes that are free on a node and on its GPUs."""

import psutil
import pynvml

from common.process import node_memory
from tests.support import nvml


def test_a_limit_of_the_control_group_counts_and_what_linux_keeps_of_files_does_not(tmp_path):
    assert node_memory.left_in_cgroup(tmp_path) == float("inf")
    (tmp_path / "memory.stat").write_text("anon 100\ninactive_file 150\nactive_file 50\n")
    (tmp_path / "memory.current").write_text("300\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert node_memory.left_in_cgroup(tmp_path) == float("inf")
    (tmp_path / "memory.max").write_text("1000\n")
    assert node_memory.left_in_cgroup(tmp_path) == 900


def test_available_is_what_the_node_and_the_control_group_both_have(monkeypatch):
    assert 0 < node_memory.available() <= psutil.virtual_memory().total
    monkeypatch.setattr(node_memory, "left_in_cgroup", lambda: 5)
    assert node_memory.available() == 5


def test_the_gpu_with_most_free_memory_counts_where_nvml_tells_of_one(monkeypatch):
    nvml.install(monkeypatch, nvml.Driver())
    assert node_memory.available_on_gpu() == 9 * nvml.GIB
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", nvml.refuse)
    assert node_memory.available_on_gpu() == float("inf")
    monkeypatch.setattr(node_memory.gpus, "processes", list)
    assert node_memory.available_on_gpu() == float("inf")

"""GPUs: their PCI bus ids, ranks that share one, what NVML reads, and the network of NCCL."""

import contextlib
import dataclasses
import math
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pynvml
import pytest

from common.ranks import gpus
from common.ranks.gpus import Device, GpuMemory
from common.ranks.launcher_variables import Ranks
from common.record import environment
from common.record.parts import Gpu, GpuMemoryByRank
from common.training import loop
from tests.support import nvml
from tests.support.mistakes import refused
from tests.support.rank_0 import ON_CPU, Rank0
from tests.support.running import ROOT

ON_GPU_1 = Device("cuda", 1, "13.0", "9.10.2", "2.27.3")


def test_the_gpus_have_the_bytes_of_the_processes_that_compute_on_them(monkeypatch):
    nvml.install(monkeypatch, nvml.Driver())
    assert gpus.processes() == [("first", {1: nvml.GIB}), ("second", {1: nvml.GIB, 7: 3 * nvml.GIB}), ("third", {8: 0})]


@pytest.mark.parametrize(
    ("code", "text"),
    [(22703, "2.27.3"), (21805, "2.18.5"), (2708, "2.7.8"), (91002, "9.10.2"), (8902, "8.9.2"), (0, None), (None, None)],
)
def test_a_version_is_read_from_its_number(code, text):
    assert gpus.version_text(code) == text


@pytest.fixture
def bus_ids(monkeypatch):
    """Returns {CUDA's number of a GPU: its PCI bus id}."""
    ids = {1: "0000:07:00.0"}
    monkeypatch.setattr(gpus, "pci_bus_id", ids.get)
    return ids


A, B = "0000:07:00.0", "0000:08:00.0"


@pytest.mark.parametrize(
    ("nodes_and_gpus", "ranks"),
    [
        ([("here", A), ("here", B)], None),
        ([("here", A), ("here", A)], "0 and 1"),
        ([("here", A), ("here", B), ("here", B), ("here", A)], "0 and 3"),
        # Nodes number their GPUs alike.
        ([("here", A), ("there", A), ("here", B), ("there", A)], "1 and 3"),
        # On CPUs, or where the driver does not tell, nothing is shared.
        ([("here", None), ("here", None)], None),
    ],
)
def test_ranks_of_one_node_with_one_pci_bus_id_are_refused(nodes_and_gpus, ranks, monkeypatch):
    monkeypatch.setattr(gpus, "values_by_rank", lambda *_: nodes_and_gpus)
    with refused(f"ranks {ranks} share the GPU {A}; start at most one rank for each GPU") if ranks else contextlib.nullcontext():
        gpus.expect_own(Rank0(), ON_CPU)


@pytest.mark.usefixtures("bus_ids")
def test_memory_is_counted_by_the_framework_and_by_nvml_of_the_whole_gpu(monkeypatch):
    trainer = Rank0(device=ON_GPU_1._replace(memory=GpuMemory(lambda: None, lambda: (3, None))))
    nvml.install(monkeypatch, nvml.Driver())
    assert loop.gpu_memory_by_rank(trainer) == GpuMemoryByRank([3], [None], [nvml.GIB])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", nvml.refuse)
    assert loop.gpu_memory_by_rank(trainer).used_bytes == [None]


def test_a_cpu_has_no_gpu_and_no_memory_of_one():
    assert loop.gpu_memory_by_rank(Rank0()) is None
    assert environment.describe_gpu(ON_CPU) is None


def test_a_gpu_is_described_by_nvml_under_its_pci_bus_id_as_far_as_it_tells(bus_ids, monkeypatch):
    nvml.install(monkeypatch, nvml.Driver())
    gpu = Gpu("the second GPU", "0000:07:00.0", "580.65", "13.0", "9.10.2", "2.27.3")
    assert environment.describe_gpu(ON_GPU_1) == gpu
    monkeypatch.setattr(pynvml, "nvmlInit", nvml.refuse)
    assert environment.describe_gpu(ON_GPU_1) == dataclasses.replace(gpu, model=None, driver=None)
    bus_ids.clear()
    assert environment.describe_gpu(ON_GPU_1) == dataclasses.replace(gpu, pci_bus_id=None, model=None, driver=None)


@pytest.mark.parametrize(("pids", "joules"), [([7], 2.0), ([7, 8], 6.5), ([1], 2.5), ([9], math.nan), ([], math.nan)])
def test_the_energy_is_that_of_gpus_on_which_a_process_of_the_run_computes(pids, joules, monkeypatch):
    driver = nvml.Driver()
    nvml.install(monkeypatch, driver)
    count = gpus.count_joules(Ranks(0, 2, 0, 2), pids)
    driver.millijoules = {"first": 1500, "second": 7000, "third": 24500}
    assert count() == pytest.approx(joules, nan_ok=True)
    assert gpus.count_joules(Ranks(1, 2, 1, 2), pids)() == 0.0
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", nvml.refuse)
    assert math.isnan(gpus.count_joules(Ranks(), pids)())


@pytest.mark.parametrize(("of_ranks", "joules"), [((5.0, 7.0), 12.0), ((5.0, math.nan), None), ((0.0, 0.0), None)])
def test_the_energy_of_a_run_is_known_where_every_node_knows_it(of_ranks, joules):
    assert gpus.total_joules(SimpleNamespace(sum=lambda values: values + of_ranks[1]), of_ranks[0]) == joules


# A driver with the GPUs 05:00.0 to 08:00.0, of which CUDA_VISIBLE_DEVICES leaves out the first ones.
DRIVER = """
#include <stdio.h>
#include <stdlib.h>
static int ready, first;
int cuInit(unsigned flags) { char *v = getenv("CUDA_VISIBLE_DEVICES"); first = v ? atoi(v) : 0; ready = 1; return flags; }
int cuDeviceGet(int *device, int ordinal) { if (!ready) return 3; if (ordinal > 3) return 101; *device = 40 + ordinal; return 0; }
int cuDeviceGetCount(int *count) { *count = ready ? 4 - first : 0; return 0; }
int cuDeviceGetPCIBusId(char *text, int length, int device) {
    if (length < 13) return 1;
    snprintf(text, length, "0000:%02x:00.0", 5 + first + device - 40);
    return 0;
}
"""


ASK_DRIVER = "from common.ranks import gpus; print(gpus.count(), *map(gpus.pci_bus_id, (0, 3, 4, None)))"


def test_the_driver_is_asked_for_the_pci_bus_id_and_the_number_of_gpus(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "driver.c").write_text(DRIVER)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"], check=True)
    for first, answer in (("0", "4 0000:05:00.0 0000:08:00.0 None None"), ("2", "2 0000:07:00.0 0000:0a:00.0 None None")):
        environ = os.environ | {"CUDA_VISIBLE_DEVICES": first, "LD_LIBRARY_PATH": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", ASK_DRIVER], cwd=ROOT, env=environ, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == answer

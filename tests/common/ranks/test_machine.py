"""The limits and the memory of a node: control groups of both versions in made trees, free bytes, what the kernel killed."""

import psutil
import pynvml
import pytest

from common.ranks import gpus, machine
from common.ranks.machine import Memory
from tests.support import nvml

NOTHING = "0::/\n"
V2 = "0::/job_1/step_0/user/task_0\n"
# As where version 1 has the controllers and version 2 the processes of systemd.
HYBRID = "9:name=systemd:/\n4:memory:/slurm/job_1\n2:cpu,cpuacct:/slurm/job_1\n0::/slurm\n"


@pytest.fixture
def tree(tmp_path):
    """A function that makes the files of {path: text} and returns the arguments of a process with these control groups."""

    def make(files, groups):
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "of_process").write_text(groups)
        return tmp_path / "cgroup", tmp_path / "of_process"

    return make


def memory(folder, limit, used, inactive=0, active=0):
    stat = f"anon 7\ninactive_file {inactive}\nactive_file {active}\n"
    return {f"{folder}memory.max": f"{limit}\n", f"{folder}memory.current": f"{used}\n", f"{folder}memory.stat": stat}


def memory_v1(folder, limit, used, inactive=0, active=0):
    stat = f"inactive_file 1\nactive_file 1\ntotal_inactive_file {inactive}\ntotal_active_file {active}\n"
    return {f"{folder}memory.limit_in_bytes": f"{limit}\n", f"{folder}memory.usage_in_bytes": f"{used}\n", f"{folder}memory.stat": stat}


UNLIMITED = 9223372036854771712


@pytest.mark.parametrize(
    ("files", "groups", "memories"),
    [
        ({}, V2, []),
        (memory("job_1/step_0/user/task_0/", 1000, 300, 150, 50), V2, [Memory(1000, 300, 200)]),
        # Slurm limits the job and the step, and puts tasks into groups below.
        (
            memory("job_1/step_0/user/task_0/", "max", 10) | memory("job_1/step_0/user/", 900, 20) | memory("job_1/", 1000, 30),
            V2, [Memory(900, 20, 0), Memory(1000, 30, 0)],
        ),
        # A container shows its own group as the one above all, under the path that it has outside.
        (memory("", 500, 1), V2, [Memory(500, 1, 0)]),
        (memory("", 500, 1), "0::/../other\n", [Memory(500, 1, 0)]),
        (memory("", 500, 1), NOTHING, [Memory(500, 1, 0)]),
        (memory("job_2/", 1, 1), V2, []),
        (
            memory_v1("memory/slurm/job_1/", UNLIMITED, 5) | memory_v1("memory/slurm/", 700, 6, 2, 3),
            HYBRID, [Memory(UNLIMITED, 5, 0), Memory(700, 6, 5)],
        ),
        (memory_v1("memory/", 700, 6) | memory("unified/slurm/", 600, 4), HYBRID, [Memory(700, 6, 0), Memory(600, 4, 0)]),
    ],
)  # fmt: skip
def test_the_memory_of_every_group_with_a_limit_is_read(files, groups, memories, tree):
    assert machine.memories(*tree(files, groups)) == memories


@pytest.mark.parametrize(
    ("files", "groups", "cores"),
    [
        ({}, V2, None),
        ({"job_1/step_0/user/task_0/cpu.max": "max 100000\n"}, V2, None),
        ({"job_1/step_0/cpu.max": "400000 100000\n", "job_1/cpu.max": "25000 50000\n"}, V2, 0.5),
        ({"cpu.max": "200000 100000\n"}, NOTHING, 2.0),
        ({"cpu,cpuacct/slurm/job_1/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/slurm/job_1/cpu.cfs_period_us": "100000\n"}, HYBRID, None),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, "1:cpu:/\n", 3.0),
    ],
)
def test_the_smallest_quota_counts(files, groups, cores, tree):
    assert machine.quota_cores(*tree(files, groups)) == cores


def test_the_smallest_room_of_the_node_and_its_control_groups_counts(monkeypatch, tmp_path):
    nowhere = tmp_path / "nowhere", tmp_path / "nothing"
    assert (machine.memories(*nowhere), machine.quota_cores(*nowhere)) == ([], None)
    assert 0 < machine.available_bytes() <= psutil.virtual_memory().total
    monkeypatch.setattr(machine, "memories", lambda: [Memory(1000, 300, 200), Memory(950, 945, 0), Memory(1 << 62, 0, 0)])
    assert (machine.available_bytes(), machine.total_bytes()) == (5, 950)


def test_the_gpu_with_most_free_memory_counts_where_nvml_tells_of_one(monkeypatch):
    nvml.install(monkeypatch, nvml.Driver())
    assert gpus.most_free_bytes() == 9 * nvml.GIB
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", nvml.refuse)
    assert gpus.most_free_bytes() == float("inf")
    nvml.install(monkeypatch, nvml.Driver())
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 0)
    assert gpus.most_free_bytes() == float("inf")


@pytest.mark.parametrize(
    ("text", "num"), [("oom_kill 3\n", 3), ("pgfault 7\noom_kill 0\nnuma_hit 1\n", 0), ("pgfault 7\n", None), (None, None)]
)
def test_the_kernel_counts_what_it_kills(text, num, tmp_path):
    if text is not None:
        (tmp_path / "vmstat").write_text(text)
    assert machine.num_oom_kills(tmp_path / "vmstat") == num

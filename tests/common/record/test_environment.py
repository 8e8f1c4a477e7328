"""The software and the hardware of a process, as its record has them: without secrets, and as far as Linux shows them."""

import dataclasses
import json

import pytest

from common.record import environment
from common.record.parts import Processor

RECORDED = (
    "OMP_NUM_THREADS", "HOROVOD_FUSION_THRESHOLD", "MPIR_CVAR_POLLS_BEFORE_YIELD", "MALLOC_TOP_PAD_", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD",
    "HDF5_USE_FILE_LOCKING",
)  # fmt: skip
SECRET = (
    "AWS_SECRET_ACCESS_KEY", "HOME", "USER", "SLURM_JOB_ACCOUNT", "MY_OMP_NUM_THREADS", "OMP_lower", "LD_PRELOAD_KEY", "TANDEM_LAUNCH",
)  # fmt: skip


def test_only_variables_that_affect_a_run_are_recorded(monkeypatch):
    # With LD_PRELOAD set, git would print that it cannot load the library.
    monkeypatch.setattr(environment, "_git", lambda *arguments: None)
    for name in (*RECORDED, *SECRET):
        monkeypatch.setenv(name, f"value of {name}")
    described = environment.describe()
    assert [name for name in RECORDED if described.variables[name] != f"value of {name}"] == []
    assert [name for name in SECRET if f"value of {name}" in json.dumps(dataclasses.asdict(described))] == []


def test_only_a_rank_that_writes_a_record_asks_git(monkeypatch):
    monkeypatch.setattr(environment, "_git", lambda *arguments: "a commit")
    assert (environment.describe().git_commit, environment.describe(of_record=False).git_commit) == ("a commit", None)


AMD = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\nstepping\t: 1\n"
ARM = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n"
CACHE = {"cpu3/cache/index3/level": "3\n", "cpu3/cache/index3/size": "32768K\n", "cpu3/cache/index3/shared_cpu_list": "0-3\n"}
LARGE = {"l3_bytes": 2**25, "l3_shared_by": "0-3"}


@pytest.mark.parametrize(
    ("cpuinfo", "files", "expected"),
    [
        (AMD, CACHE, Processor("AuthenticAMD", 26, 2, 1, **LARGE, hypervisor="KVM")),
        (ARM, {"cpu3/cpufreq/scaling_governor": "performance\n"}, Processor("0x41", 8, 0xD0C, 1, hypervisor="KVM", governor="performance")),
        # A cache of another level, and one of another core.
        (AMD, {"cpu3/cache/index2/level": "2\n", "cpu0/cache/index3/level": "3\n"}, Processor("AuthenticAMD", 26, 2, 1, hypervisor="KVM")),
        (None, {}, Processor(hypervisor="KVM")),
    ],
)
def test_what_linux_shows_is_recorded_and_what_it_does_not_is_left_out(cpuinfo, files, expected, tmp_path, monkeypatch):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    if cpuinfo:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    monkeypatch.setattr(environment, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(environment, "TOPOLOGY", tmp_path)
    assert environment.describe_processor(3, "KVM") == expected


@pytest.mark.parametrize(
    ("script", "hypervisor"),
    [("echo 'Hypervisor vendor:     KVM'", "KVM"), ("echo 'Vendor ID: GenuineIntel'", None), ("exit 1", None), (None, None)],
)
def test_lscpu_names_the_hypervisor(script, hypervisor, tmp_path, monkeypatch):
    if script:
        (tmp_path / "lscpu").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "lscpu").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.hypervisor() == hypervisor

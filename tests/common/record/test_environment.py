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


AMD = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n"
ARM = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n"


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [(AMD, Processor("AuthenticAMD", 26, 2, "KVM")), (ARM, Processor("0x41", 8, 0xD0C, "KVM")), (None, Processor(hypervisor="KVM"))],
)
def test_what_linux_shows_is_recorded_and_what_it_does_not_is_left_out(cpuinfo, expected, tmp_path, monkeypatch):
    if cpuinfo:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    monkeypatch.setattr(environment, "CPUINFO", tmp_path / "cpuinfo")
    assert environment.describe_processor("KVM") == expected


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

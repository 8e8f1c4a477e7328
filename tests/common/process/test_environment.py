"""The software and the hardware of a process, as its record has them: without secrets."""

import dataclasses
import json

from common.process import environment

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

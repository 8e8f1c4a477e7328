"""Runs of a user who has no name and no HOME, as in a container that is started with --user 12345."""

import subprocess

import pytest

from tests.support.running import FEW_STEPS, ROOT, matrix, records_in

EXAMPLE = ROOT / "frameworks/own_model/rings.py"
# In a namespace of its own, so that the files of whoever runs the tests are this user's.
IN_NAMESPACE = ("unshare", "--user", "--map-user=12345", "--map-group=12345")
NAMELESS = (*IN_NAMESPACE, "env", "-u", "HOME", "-u", "USER", "-u", "LOGNAME")
SHORT = ("--epochs", "1", "--no-step-breakdown", "--device", "cpu")


def has_namespaces():
    try:
        return subprocess.run([*IN_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


pytestmark = [
    pytest.mark.matrix,
    pytest.mark.skipif(not has_namespaces(), reason="this kernel makes no namespace of users with the unshare that is here"),
]


def test_a_matrix_runs(checkout, tmp_path):
    # DeepSpeed and PyTorch ask the system who the user is.
    backend = "deepspeed_zero"
    done = matrix(
        checkout, tmp_path, "1", "--backends", backend, "--workloads", "cnn", *SHORT,
        around=NAMELESS, variables=FEW_STEPS | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    # What a library takes for the home folder.
    assert not (checkout / "~").exists()
    assert {record["backend"]: record["status"] for record in records_in(tmp_path)} == {backend: "ok"}

"""The test for ReFrame: it passes by a site's references, and fails where a backend takes 20 % longer. It needs `reframe` in PATH."""

import json
from shutil import which

import pytest

from tests.support import made_backends, slurm_cluster
from tests.support.running import completed, with_backends

CONFIGURATION = """site_configuration = {
    "systems": [{"name": "here", "hostnames": [".*"], "partitions": [
        {"name": "local", "scheduler": "local", "launcher": "local", "environs": ["builtin"]},
        {"name": "slurm", "scheduler": "squeue", "launcher": "srun", "environs": ["builtin"]},
    ]}],
}
"""
# The second backend is the first, slowed or not.
AXES = ("backends=ddp,ddp_made", "sizes=1", "repeats=1", "options=--workloads cnn --epochs 4 --no-stop-at-target --no-step-breakdown")
REFERENCES = {"TandemMatrix": {"*": {"ddp_made_1_ratio": [1.0, None, 0.1, "times"]}}}


def reframe(partition, sleep_seconds, checkout, folder, variables=None):
    """(exit status, what was printed, records) of ReFrame's run of the test on a partition, with a sleep in each step of the copy."""
    (folder / "configuration.py").write_text(CONFIGURATION)
    (folder / "references.json").write_text(json.dumps(REFERENCES))
    settings = [word for axis in (*AXES, f"reference_file={folder / 'references.json'}") for word in ("-S", axis)]
    files = ("-C", folder / "configuration.py", "-c", checkout / "tests" / "sites" / "reframe_matrix.py", "--prefix", folder)
    with with_backends(checkout, {"ddp_made": made_backends.text("ddp", f"time.sleep({sleep_seconds})")}):
        done = completed("reframe", *files, "--system", f"here:{partition}", "-r", *settings, cwd=folder, variables=variables, seconds=900)
    paths = folder.glob(f"*/here/{partition}/builtin/TandemMatrix/results/here/*.json")
    return done.returncode, done.stdout + done.stderr, [json.loads(path.read_text()) for path in paths]


@pytest.mark.long
@pytest.mark.skipif(which("reframe") is None, reason="there is no reframe here; pip install reframe-hpc==4.10.4 apart from .venv")
def test_reframe_passes_on_its_own_and_under_slurm_and_fails_for_a_backend_slowed_by_20_percent(checkout, tmp_path):
    if why_not := slurm_cluster.why_not():
        pytest.skip(why_not)
    status, printed, _ = reframe("local", 0, checkout, tmp_path)
    assert status == 0, printed
    with slurm_cluster.started(tmp_path / "slurm") as slurm:
        status, printed, records = reframe("slurm", 0, checkout, tmp_path, slurm)
        assert status == 0, printed
        assert {record["launcher"] for record in records} == {"srun"}
        (record,) = (record for record in records if record["backend"] == "ddp")
        epoch_seconds = sum(record["train_seconds"]) + sum(record["eval_seconds"])
        status, printed, _ = reframe("slurm", 0.2 * epoch_seconds / len(record["losses"]), checkout, tmp_path, slurm)
    assert status == 1
    assert "ddp_made_1_ratio=1." in printed

"""A run whose ranks lack what the matrix has set has failed."""

import pytest

from tests.support.running import BIN, matrix, records_in


@pytest.mark.matrix
def test_variables_that_do_not_reach_a_rank_fail_the_run(checkout, short_run, tmp_path):
    machine = tmp_path / "site.toml"
    # As in a container without the environment of the node.
    machine.write_text(f'python = ["env", "-i", "PATH=/usr/bin:/bin", "{BIN / "python"}"]\n[variables]\nHOROVOD_CYCLE_TIME = "7"\n')
    done = matrix(checkout, tmp_path, "1", "--backends", "single", "--workloads", "cnn", *short_run, "--machine-file", machine)
    assert done.returncode == 1, done.stdout + done.stderr
    (record,) = records_in(tmp_path)
    assert record["status"] == "failed"
    missing = "OMP_NUM_THREADS, HOROVOD_CYCLE_TIME, TANDEM_LAUNCH, TANDEM_MESSAGES"
    assert record["error"].startswith(f"{missing}, which the matrix has set, did not reach this rank; ")

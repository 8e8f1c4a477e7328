"""A run whose ranks lack what the matrix has set has failed, whatever keeps it from them."""

import pytest

from tests.support.running import BIN, matrix, records_in

pytestmark = pytest.mark.matrix

# What a site does around a rank's Python: a container without the environment, a module that removes a variable.
PYTHONS = {
    'python = ["env", "-i", "PATH=/usr/bin:/bin", "{python}"]': "OMP_NUM_THREADS, HOROVOD_CYCLE_TIME, TANDEM_LAUNCH, TANDEM_MESSAGES",
    'python = ["env", "-u", "HOROVOD_CYCLE_TIME", "{python}"]': "HOROVOD_CYCLE_TIME",
    'prologue = "unset TANDEM_LAUNCH"': "TANDEM_LAUNCH",
}


@pytest.mark.parametrize("python", PYTHONS)
def test_a_variable_that_does_not_reach_a_rank_fails_the_run(python, checkout, short_run, tmp_path):
    machine = tmp_path / "site.toml"
    machine.write_text(python.format(python=BIN / "python") + '\n[variables]\nHOROVOD_CYCLE_TIME = "7"\n')
    done = matrix(checkout, tmp_path, "1", "--backends", "single", "--workloads", "cnn", *short_run, "--machine-file", machine)
    assert done.returncode == 1, done.stdout + done.stderr
    (record,) = records_in(tmp_path)
    assert record["status"] == "failed"
    assert record["error"].startswith(f"{PYTHONS[python]}, which the matrix has set, did not reach this rank; ")


@pytest.mark.parametrize("launcher", ["mpich", "torchrun"])
def test_what_reaches_the_ranks_is_recorded_and_no_argument_of_the_matrix(launcher, checkout, short_run, tmp_path):
    machine = tmp_path / "site.toml"
    machine.write_text('[variables]\nHOROVOD_CYCLE_TIME = "7"\n')
    arguments = ("2", "--backends", "ddp", "--workloads", "cnn", *short_run, "--machine-file", machine, "--launcher", launcher)
    done = matrix(checkout, tmp_path, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = records_in(tmp_path)
    assert record["environment"]["variables"]["HOROVOD_CYCLE_TIME"] == "7"
    assert "--expect-variables" not in record["command"]

"""The matrix beside a site's Python, which is here the environment's, and a run whose ranks lack what the matrix has set.

Ranks run in a site's Python in test_same_under_launchers.py.
"""

import os

import pytest

from tests.support.running import BIN, completed, copied, make_light, matrix, records_in


@pytest.mark.matrix
def test_what_a_module_sets_counts_in_a_sites_python_and_not_in_the_environment(tmp_path):
    checkout = copied(tmp_path)
    # The environment counts as up to date.
    (checkout / "launch/setup.sh").write_text("#!/bin/sh\n")
    (tmp_path / "sitecustomize.py").write_text("import sys\n\nprint('of a module', file=sys.stderr)\n")

    # This machine may have no mpiexec beside the environment's.
    variables = {"PYTHONPATH": str(tmp_path), "PATH": f"{os.environ['PATH']}{os.pathsep}{BIN}"}

    def dry_run():
        command = ("launch/matrix.sh", "1", "--backends", "single", "--workloads", "cnn", "--dry-run", "--results", tmp_path / "results")
        dry = completed(*command, cwd=checkout, variables=variables)
        assert dry.returncode == 0, dry.stderr
        return dry.stdout, dry.stderr

    started = f"{BIN / 'python'} -m frameworks.single "
    commands, notes = dry_run()
    assert started not in commands
    assert "of a module" not in notes
    (checkout / ".venv").unlink()
    make_light(checkout)
    commands, notes = dry_run()
    assert f"{checkout / '.light/bin/python'} -m frameworks.single " in commands
    assert "of a module" in notes


@pytest.mark.matrix
def test_an_environment_that_does_not_start_is_not_replaced_in_silence(tmp_path):
    checkout = copied(tmp_path)
    (checkout / ".venv").unlink()
    light = checkout / ".light" / "bin" / "python"
    light.parent.mkdir(parents=True)
    # As where the module of its Python is not loaded.
    light.write_text("#!/bin/sh\nexit 127\n")
    light.chmod(0o755)
    command = ("launch/matrix.sh", "1", "--backends", "single", "--print-jobs", "slurm")
    done = completed(*command, cwd=checkout, variables={"TANDEM_PYTHON": str(BIN / "python")})
    assert (done.returncode, done.stdout.startswith("#!")) == (0, True)
    assert (
        done.stderr == f"note: {light} does not start here, and the matrix runs in {BIN}/python; load the modules with which it was made\n"
    )


@pytest.mark.matrix
def test_variables_that_do_not_reach_a_rank_fail_the_run(light_checkout, short_run, tmp_path):
    machine = tmp_path / "site.toml"
    # As in a container without the environment of the node.
    machine.write_text(f'python = ["env", "-i", "PATH=/usr/bin:/bin", "{BIN / "python"}"]\n[variables]\nHOROVOD_CYCLE_TIME = "7"\n')
    done = matrix(light_checkout, tmp_path, "1", "--backends", "light", "--workloads", "cnn", *short_run, "--machine-file", machine)
    assert done.returncode == 1, done.stdout + done.stderr
    (record,) = records_in(tmp_path)
    assert record["status"] == "failed"
    missing = "OMP_NUM_THREADS, HOROVOD_CYCLE_TIME, TANDEM_RANKS_PER_NODE, TANDEM_MESSAGES, TANDEM_LAUNCH"
    # A rank that does not know the secret of messages can only print.
    assert f"the last line: error: {missing}, which the matrix has set, did not reach this rank; " in record["error"]

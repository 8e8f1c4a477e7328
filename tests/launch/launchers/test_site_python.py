"""The matrix beside a site's Python, which is here the environment's. Ranks run in one in test_same_under_launchers.py."""

import os

import pytest

from tests.support.running import BIN, completed, copied, make_light


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

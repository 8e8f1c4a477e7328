"""The ReFrame test of a matrix, run by ReFrame: a matrix on a real Slurm cluster, and others that leave made records."""

import json
import os
import re

import pytest

from tests.support import reframe, slurm_cluster
from tests.support.made_records import made
from tests.support.running import completed, copied, records_in

pytestmark = pytest.mark.matrix

BELOW, ABOVE = "ddp", "horovod_torch"
OPTIONS = "--machine,here,--epochs,1,--no-stop-at-target,--no-step-breakdown"
# In the place of launch/matrix.sh.
STAND_IN = """#!/bin/sh
cp -r {records} results
exit {status}
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The variables with which commands find a cluster."""
    if why_not := reframe.why_not() or slurm_cluster.why_not():
        pytest.skip(why_not)
    with slurm_cluster.started(tmp_path_factory.mktemp("slurm")) as variables:
        yield variables


def run(checkout, folder, partition, *options, variables=None):
    """What ReFrame does and prints in a copied checkout, in a folder of its own below this one."""
    test = checkout / "tests" / "sites" / "reframe_matrix.py"
    return reframe.run(test, folder / "reframe", partition, *(word for option in options for word in ("-S", option)), variables=variables)


def leaving(folder, status, *records):
    """A copied checkout whose matrix leaves these records and ends with this exit status."""
    checkout = copied(folder)
    (checkout / "launch" / "matrix.sh").write_text(STAND_IN.format(records=write(folder / "made", *records), status=status))
    return checkout


def write(folder, *records):
    """Writes records into a folder; returns it."""
    (folder / "here").mkdir(parents=True)
    for record in records:
        (folder / "here" / f"{record['settings']['run_id']}.json").write_text(json.dumps(record))
    return folder


def of_two_backends(seconds_above, **changes):
    """The records of two backends with these times to solution."""
    seconds = {BELOW: 10.0, ABOVE: seconds_above}
    return [made(backend, num_ranks=2, seconds=seconds[backend], repeat=repeat, **changes) for backend in seconds for repeat in range(3)]


def test_a_matrix_runs_on_slurm_and_reframe_keeps_its_records(checkout, slurm, tmp_path):
    # Else launch/matrix.sh would set up the environment of all copies of the checkout.
    assert completed("launch/setup.sh", "--check", cwd=checkout).returncode == 0
    options = (f"backends={BELOW}", "repeats=1", f"executable_opts={OPTIONS}")
    done = run(checkout, tmp_path, "slurm", *options, variables=slurm)
    assert done.returncode == 0, done.stdout
    assert re.search(rf"P: {BELOW}_samples_per_second: \S+ samples/s$", done.stdout, re.MULTILINE), done.stdout
    (results,) = tmp_path.glob("reframe/output/here/slurm/plain/*/results")
    assert [(record["backend"], record["launcher"], record["num_ranks"]) for record in records_in(results)] == [(BELOW, "srun", 2)]


@pytest.mark.skipif(reframe.why_not() is not None, reason=str(reframe.why_not()))
def test_a_backend_that_is_slower_than_before_fails(tmp_path):
    reference = write(tmp_path / "reference", *of_two_backends(10.0, stamp="20250101-000000", started_at="2025-01-01T00:00:00Z"))
    options = (f"backends={BELOW},{ABOVE}", f"reference_results={os.path.relpath(reference, tmp_path / 'reframe')}")
    done = run(leaving(tmp_path, 0, *of_two_backends(15.0)), tmp_path, "local", *options)
    assert done.returncode == 1, done.stdout
    assert f"{ABOVE} is slower: time to solution (s) 10 before, 15 after" in done.stdout, done.stdout
    assert f"{BELOW} is slower" not in done.stdout


def test_a_failed_run_fails_with_its_cause_where_the_scheduler_tells_no_exit_status(slurm, tmp_path):
    failed = made(ABOVE, num_ranks=2, status="failed", error="rank 1: RuntimeError: cannot go on")
    checkout = leaving(tmp_path, 1, made(BELOW, num_ranks=2), failed)
    done = run(checkout, tmp_path, "slurm", f"backends={BELOW},{ABOVE}", variables=slurm)
    assert done.returncode == 1, done.stdout
    assert f"the matrix has exit status 1; {ABOVE}, repeat 0: rank 1: RuntimeError: cannot go on" in done.stdout

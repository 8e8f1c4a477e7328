"""The ReFrame test of a matrix, run by ReFrame on this machine and on a real Slurm cluster."""

import os
import re

import pytest

from tests.support import made_backends, reframe, slurm_cluster
from tests.support.running import completed, records_in, with_backends

pytestmark = [pytest.mark.matrix, pytest.mark.long]

# A copy of the backend that takes turns with it, so that their ratio is about 1 on a busy machine too.
BACKEND, COPY = "ddp", "ddp_again"
RATIO = f"{COPY}_ratio_to_{BACKEND}"
OPTIONS = "--machine,here,--epochs,4,--no-stop-at-target,--no-step-breakdown"
# Far above the tolerance, also where waiting and evaluating, which are not slowed, take most of an epoch.
SLOWED = "from tests.support import slowing; slowing.compute_more(0.8)"


@pytest.fixture(scope="module")
def cluster(checkout, tmp_path_factory):
    """{partition: variables with which its commands find it}."""
    if why_not := reframe.why_not() or slurm_cluster.why_not():
        pytest.skip(why_not)
    # Else launch/matrix.sh would set up the environment of all copies of the checkout.
    assert completed("launch/setup.sh", "--check", cwd=checkout).returncode == 0
    with slurm_cluster.started(tmp_path_factory.mktemp("slurm")) as variables:
        yield {"local": {}, "slurm": variables}


def run(checkout, cluster, folder, partition, statement, *options):
    """What ReFrame does and prints in a copied checkout whose copy of the backend executes a statement in each step."""
    chosen = [f"backends={BACKEND},{COPY}", "repeats=1", f"relative_to={BACKEND}", f"executable_opts={OPTIONS}", *options]
    test = checkout / "tests" / "sites" / "reframe_matrix.py"
    with with_backends(checkout, {COPY: made_backends.text(BACKEND, statement)}):
        return reframe.run(test, folder, partition, *(word for option in chosen for word in ("-S", option)), variables=cluster[partition])


@pytest.fixture(scope="module")
def accepted(checkout, cluster, tmp_path_factory):
    """The folder of records that ReFrame keeps of a test without a reference."""
    folder = tmp_path_factory.mktemp("accepted") / "reframe"
    done = run(checkout, cluster, folder, "local", "pass")
    assert done.returncode == 0, done.stdout
    assert f"P: {RATIO}: " in done.stdout
    (results,) = folder.glob("output/here/local/plain/*/results")
    return results


def test_a_backend_that_is_as_fast_as_before_passes(checkout, cluster, accepted, tmp_path):
    # What is to pass on the busiest machine; by default it is half of that.
    options = (f"reference_results={os.path.relpath(accepted, tmp_path / 'reframe')}", "tolerance=0.3")
    done = run(checkout, cluster, tmp_path / "reframe", "slurm", "pass", *options)
    assert done.returncode == 0, done.stdout
    assert re.search(rf"P: {RATIO}: \S+ ratio \(r:\S+, l:-0.3, u:0.3\)", done.stdout), done.stdout
    (results,) = tmp_path.glob("reframe/output/here/slurm/plain/*/results")
    outcomes = {(record["backend"], record["launcher"], record["num_turns"] > 0) for record in records_in(results)}
    assert outcomes == {(BACKEND, "srun", True), (COPY, "srun", True)}


def test_a_backend_that_has_become_slower_fails(checkout, cluster, accepted, tmp_path):
    done = run(checkout, cluster, tmp_path / "reframe", "local", SLOWED, f"reference_results={accepted}")
    assert done.returncode == 1, done.stdout
    failure = re.search(rf"failed to meet reference\(s\): {RATIO}=(\S+) ratio, expected (\S+) .*u=(\S+)\)", done.stdout)
    assert failure, done.stdout
    value, reference, upper = map(float, failure.groups())
    assert upper == pytest.approx(1.15 * reference)
    assert value > upper


def test_a_failed_run_fails_with_its_cause_where_the_scheduler_tells_no_exit_status(checkout, cluster, tmp_path):
    done = run(checkout, cluster, tmp_path / "reframe", "slurm", "raise RuntimeError('cannot go on')")
    assert done.returncode == 1, done.stdout
    assert "the matrix has exit status 1; " in done.stdout
    assert f"{COPY}, repeat 0: " in done.stdout
    assert "RuntimeError: cannot go on" in done.stdout

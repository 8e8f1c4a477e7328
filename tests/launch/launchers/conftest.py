"""Fixtures of the tests that start ranks through several launchers."""

import pytest

from tests.support import site, small_data
from tests.support.backends import LAUNCHED_ON_ONE_NODE
from tests.support.running import matrix, records_in


@pytest.fixture(scope="session")
def short_run(tmp_path_factory):
    """The arguments of a run of six steps."""
    data = small_data.write(tmp_path_factory.mktemp("data"), 100)["cnn"]
    return *data[2:], "--scaling", "strong", "--batch-size", "16", "--epochs", "1", "--no-stop-at-target", "--no-step-breakdown"


@pytest.fixture(scope="session")
def on_one_node(checkout, short_run, tmp_path_factory):
    """{backend: its record} of the short run with two ranks, which MPICH starts on this machine as a site would have it."""
    folder = tmp_path_factory.mktemp("it's a module ")
    settings = ("--backends", ",".join(LAUNCHED_ON_ONE_NODE), "--workloads", "cnn", *short_run, *site.write(folder))
    done = matrix(checkout, folder, "2", *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    records = {record["backend"]: record for record in records_in(folder)}
    assert {(record["launcher"], record["num_nodes"], len(record["losses"])) for record in records.values()} == {("mpich", 1, 6)}
    for record in records.values():
        site.expect(record, folder)
    return records

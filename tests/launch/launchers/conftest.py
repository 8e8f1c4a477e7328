"""Fixtures of the tests that start ranks through several launchers."""

import pytest
import torch

from common.process import mkl_kernels
from tests.support import small_data
from tests.support.backends import LAUNCHED
from tests.support.running import matrix, records_in


@pytest.fixture(scope="session")
def short_run(tmp_path_factory):
    """The arguments of a run of six steps."""
    data = small_data.write(tmp_path_factory.mktemp("data"), 100)["cnn"]
    return *data[2:], "--scaling", "strong", "--batch-size", "16", "--epochs", "1", "--no-stop-at-target", "--no-step-breakdown"


@pytest.fixture(scope="session")
def on_one_node(checkout, short_run, tmp_path_factory):
    """{backend: its record} of the short run with two ranks, which MPICH starts on this machine."""
    results = tmp_path_factory.mktemp("results")
    done = matrix(checkout, results, "2", "--backends", ",".join(LAUNCHED), "--workloads", "cnn", *short_run)
    assert done.returncode == 0, done.stdout + done.stderr
    records = {record["backend"]: record for record in records_in(results)}
    assert {(record["launcher"], record["num_nodes"], len(record["losses"])) for record in records.values()} == {("mpich", 1, 6)}
    return records


@pytest.fixture(scope="session")
def trained_with_fast_mkl(checkout, short_run, tmp_path_factory):
    """A function that returns the record of the short run of `ddp` on two ranks with --mkl-kernels fast, as `matrix` starts it."""
    if not torch.backends.mkl.is_available() or mkl_kernels.problem():
        pytest.skip("this PyTorch has no MKL, or its library is not built")

    def trained(*arguments, **options):
        results = tmp_path_factory.mktemp("results")
        settings = ("--backends", "ddp", "--workloads", "cnn", *short_run, "--mkl-kernels", "fast", *arguments)
        done = matrix(checkout, results, "2", *settings, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        (record,) = records_in(results)
        return record

    return trained


@pytest.fixture(scope="session")
def with_fast_mkl(trained_with_fast_mkl):
    """The record of that run under MPICH."""
    return trained_with_fast_mkl()

"""Under torchrun the loss of each step is bitwise the same as under MPICH."""

import pytest

from common.backends import needs_mpi
from tests.support import site
from tests.support.backends import LAUNCHED_ON_ONE_NODE
from tests.support.made_records import valid
from tests.support.running import matrix, records_in

pytestmark = pytest.mark.matrix


def test_under_torchrun_a_backend_trains_the_same_or_is_skipped(checkout, short_run, on_one_node, tmp_path):
    backends = (*LAUNCHED_ON_ONE_NODE, "ddp@mpi")
    settings = ("--launcher", "torchrun", "--workloads", "cnn", *short_run, "--backends", ",".join(backends), *site.write(tmp_path))
    done = matrix(checkout, tmp_path, "2", *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    record_of_backend = {record["backend"]: record for record in records_in(tmp_path)}
    assert record_of_backend.keys() == {name for name in backends if not needs_mpi(name)}
    for backend in filter(needs_mpi, backends):
        assert f"skipping {backend}: it needs MPI" in done.stderr
    for backend, record in record_of_backend.items():
        assert (record["launcher"], record["status"], record["in_sync"]) == ("torchrun", "ok", True)
        valid(record)
        site.expect(record, tmp_path)
        assert record["losses"] == on_one_node[backend]["losses"]

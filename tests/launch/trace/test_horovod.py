"""A real training run under the interposer: calls of Horovod and mpi4py are counted, and gradients are separated from control."""

import pytest

from common.training.loop import NUM_WARMUP_STEPS
from launch.trace import build, mpi_profile, traced
from tests.support import small_data
from tests.support.running import train
from tests.support.tracing import Traced

pytestmark = pytest.mark.matrix

NUM_SAMPLES, BATCH_SIZE = 130, 16


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("horovod")
    data = small_data.write_digits(folder / "mnist", NUM_SAMPLES)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in traced.variables(build.build(), folder / "profiles").items():
            patch.setenv(name, value)
        status, record, parameters = train("horovod_torch", 2, folder, *data, "--epochs", "1", "--batch-size", str(BATCH_SIZE))
    assert status == 0, record["error"]
    return record, sum(array.size for array in parameters.values()), Traced(status, "", folder / "profiles")


def test_a_traced_run_ends_like_an_untraced_one(trained):
    record, _, done = trained
    assert record["status"] == "ok"
    texts = done.profiles(suffix="")
    for rank, profile in done.profiles().items():
        assert profile.ended == "MPI_Finalize()"
        assert texts[rank].routines.keys() == profile.routines.keys()
        # The record's MPI version comes through mpi4py; Horovod's library has no such call.
        assert profile.routines["MPI_Get_library_version"].sums.num_calls >= 1
    assert [task.rank for task in done.profiles()[0].tasks] == [0, 1]
    assert all(task.max_resident_bytes > 100 * mpi_profile.MEBIBYTE for task in done.profiles()[0].tasks)


def test_gradients_are_payload_and_negotiation_is_control(trained):
    record, num_parameters, done = trained
    num_steps = len(record["losses"]) + NUM_WARMUP_STEPS
    gradients_bytes = num_steps * num_parameters * 4
    for profile in done.profiles().values():
        allreduce = profile.routines["MPI_Allreduce"]
        payload_bytes = allreduce.sums.size_bytes - allreduce.control.size_bytes
        # Initial parameters and sums make a little more.
        assert gradients_bytes <= payload_bytes < 1.3 * gradients_bytes
        assert allreduce.control.num_calls > 10
        assert allreduce.control.size_bytes / allreduce.control.num_calls < 1000
        assert profile.kinds["payload"].size_bytes >= payload_bytes
        assert profile.payload_bytes_per_second() > 1e6

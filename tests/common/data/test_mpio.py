"""HDF5 through MPI-IO: losses equal to the bit where h5py has MPI, and one line where it cannot be."""

import h5py
import pytest

from common.config import Settings, check
from common.cost import parallelism
from tests.support.forked import run_module
from tests.support.mistakes import refusal
from tests.support.running import train_in_turn

MPI = h5py.get_config().mpi
TOGETHER, ALONE = "hdf5-mpio", "hdf5-mpio-independent"
ARGUMENTS = ("--batch-size", 4, "--epochs", 2, "--no-stop-at-target")


def test_neither_threads_nor_a_server_read_together():
    text = refusal(check, Settings(data_format=TOGETHER, num_workers=1))
    assert text.startswith("--num-workers is 1; all ranks read hdf5-mpio together")
    check(Settings(data_format=ALONE, num_workers=1))
    problem = parallelism.problem("parameter_server", Settings(data_format=TOGETHER), 3)
    assert problem.startswith("parameter_server has a rank that reads no samples")
    assert parallelism.problem("parameter_server", Settings(data_format=ALONE), 3) is None


@pytest.mark.skipif(MPI, reason="this h5py was built with MPI")
@pytest.mark.parametrize("name", [TOGETHER, ALONE])
def test_an_h5py_without_mpi_is_refused_in_one_line(name, tmp_path):
    status, _, error = run_module("frameworks.single", "--data-format", name, "--data-dir", tmp_path, "--results", tmp_path / "results")
    assert (status, error.count("\n")) == (2, 1)
    assert error.startswith(f"error: --data-format {name} needs an h5py that was built with MPI; run TANDEM_HDF5=parallel launch/setup.sh")


@pytest.mark.matrix
@pytest.mark.skipif(not MPI, reason="this h5py was built without MPI; TANDEM_HDF5=parallel launch/setup.sh builds one with it")
@pytest.mark.parametrize(("backend", "ranks"), [("ddp", 1), ("ddp", 2), ("horovod_torch", 2), ("pipeline", 2), ("horovod_tf", 4)])
def test_the_losses_are_those_of_data_in_memory_to_the_bit(backend, ranks, digits, tmp_path):
    disk = [("--data-format", name, "--data-dir", digits.folders["hdf5"]) for name in ("hdf5", TOGETHER, ALONE)]
    runs = [("--data-dir", digits.in_memory["data_dir"]), *disk, (*disk[-1], "--num-workers", 2)]
    trained = train_in_turn(ranks, tmp_path, [(backend, "none", *ARGUMENTS, "--dataset", "mnist", *run) for run in runs])
    memory, *from_disk = (record for record, _ in trained)
    assert memory["status"] == "ok", memory["error"]
    for record in from_disk:
        assert (record["status"], record["losses"]) == ("ok", memory["losses"]), record["error"]
        assert (record["accuracies"], record["workload_digest"]) == (memory["accuracies"], memory["workload_digest"])
    # All ranks open each of the seven files; by itself, one opens those that it needs, in each epoch.
    together = from_disk[1]["reading"]
    assert together["num_opens_by_rank"] == [7] * ranks
    assert together["sample_bytes_by_rank"] == from_disk[0]["reading"]["sample_bytes_by_rank"]

"""Datasets by name, with the shapes and types of their workloads."""

import numpy as np
import pytest

from common.config import Settings
from common.data.datasets import loader
from common.workloads import WORKLOADS
from tests.support import small_data
from tests.support.mistakes import refused


def arrays(dataset):
    return dataset.train.inputs, dataset.train.targets, dataset.test.inputs, dataset.test.targets


# Those for throughput only are tested below.
PAIRS = [(name, dataset) for name, workload in WORKLOADS.items() for dataset in workload.datasets if workload.target is not None]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Returns {(workload, dataset): Dataset}, of small files where it is read from files."""
    folder = tmp_path_factory.mktemp("data")
    small_data.write_digits(folder / "mnist", 100)
    (folder / "tinystories").mkdir()
    (folder / "tinystories" / "train.txt").write_text("Once there was a cat.\n" * 2000)
    return {pair: loader(Settings(workload=pair[0], dataset=pair[1], data_dir=folder / pair[1]))() for pair in PAIRS}


@pytest.mark.parametrize("pair", PAIRS)
def test_samples_have_the_shapes_and_types_that_the_model_takes(pair, datasets):
    model, data = WORKLOADS[pair[0]].model, datasets[pair]
    for inputs, targets in (arrays(data)[:2], arrays(data)[2:]):
        assert len(inputs) == len(targets) > 0
        assert inputs.shape[1:] == model.input_shape
        assert targets.shape[1:] == model.target_shape
        assert np.issubdtype(inputs.dtype, np.integer) == model.whole_inputs
        assert np.issubdtype(targets.dtype, np.integer)
        assert (targets >= 0).any(axis=tuple(range(1, targets.ndim))).all(), "a sample has no loss"
    assert len(data.digest) == 64


@pytest.mark.parametrize("workload", ["cnn", "transformer"])
def test_without_a_name_it_is_the_workloads_first(workload, datasets):
    assert loader(Settings(workload=workload))().digest == datasets[workload, WORKLOADS[workload].datasets[0]].digest


FROM_FILES = [("cnn", "mnist"), ("transformer", "tinystories")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, "--dataset {} requires --data-dir, the folder with "),
        ("nowhere", "nowhere is not a folder; give the one with "),
        ("file", "file is not a folder; give the one with "),
        # No folder is closed to root, who may run this; a name that is too long is refused to anyone.
        ("a" * 300, " cannot be read (File name too long); give the folder with "),
    ],
)
@pytest.mark.parametrize(("workload", "dataset"), FROM_FILES)
def test_a_folder_that_is_not_there_is_refused_before_anything_is_read(workload, dataset, name, message, tmp_path):
    (tmp_path / "file").write_text("")
    with refused("--data-dir", message.format(dataset)):
        loader(Settings(workload=workload, dataset=dataset, data_dir=name and tmp_path / name))


def test_files_are_not_read_before_the_reader_is_called(tmp_path):
    (tmp_path / "train.txt").write_text("a")
    read = loader(Settings(workload="transformer", dataset="tinystories", data_dir=tmp_path))
    (tmp_path / "train.txt").write_text("Once there was a cat.\n" * 100)
    assert len(read().train.inputs) > 0


def test_random_images_are_256_of_bytes_with_a_class_each_and_none_held_out():
    in_float32, in_float64 = (loader(Settings(workload="resnet50", precision=precision))() for precision in ("fp32", "fp64"))
    assert [array.shape for array in arrays(in_float32)] == [(256, 224, 224, 3), (256,), (0, 224, 224, 3), (0,)]
    assert (in_float32.train.inputs.dtype, in_float32.train.inputs.min(), in_float32.train.inputs.max()) == (np.uint8, 0, 255)
    assert in_float32.train.inputs.mean() == pytest.approx(127.5, abs=0.1)
    assert 0 <= in_float32.train.targets.min() < 100
    assert 900 < in_float32.train.targets.max() < 1000
    assert in_float32.digest == in_float64.digest

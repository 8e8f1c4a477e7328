"""Datasets by name, with the shapes and types of their workloads."""

import numpy as np
import pytest

from common.config import Settings
from common.data.datasets import loader
from common.workloads import WORKLOADS
from tests.support import small_data


def arrays(dataset):
    return dataset.train.inputs, dataset.train.targets, dataset.test.inputs, dataset.test.targets


# Those for throughput only are tested below.
PAIRS = [(name, dataset) for name, workload in WORKLOADS.items() for dataset in workload.datasets if workload.target is not None]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Returns {(workload, dataset): Dataset}, of small files where it is read from files."""
    folder = tmp_path_factory.mktemp("data")
    small_data.write_digits(folder / "mnist", 100)
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


def test_random_images_are_256_of_bytes_with_a_class_each_and_none_held_out():
    in_float32, in_float64 = (loader(Settings(workload="resnet50", precision=precision))() for precision in ("fp32", "fp64"))
    assert [array.shape for array in arrays(in_float32)] == [(256, 224, 224, 3), (256,), (0, 224, 224, 3), (0,)]
    assert (in_float32.train.inputs.dtype, in_float32.train.inputs.min(), in_float32.train.inputs.max()) == (np.uint8, 0, 255)
    assert in_float32.train.inputs.mean() == pytest.approx(127.5, abs=0.1)
    assert 0 <= in_float32.train.targets.min() < 100
    assert 900 < in_float32.train.targets.max() < 1000
    assert in_float32.digest == in_float64.digest

"""Converted data sets for tests: the digits as MNIST has them, or the workload's own data, in any format."""

from common import workloads
from common.config import Settings
from common.data import datasets, formats
from launch.conversion import writing
from launch.conversion.writing import Conversion
from tests.support import small_data

IN_ORDER = [name for name in formats.FORMATS if formats.module_of(name).IN_ORDER]
# 323 samples of 3,144 bytes: seven files, the last one shorter.
FILE_SIZE = 0.15


def convert(folder, data_format, workload="cnn", **settings):
    """Converts a workload's data into a folder; returns the folder."""
    assert writing.run(Conversion(workload, data_format, folder, **{"file_size": FILE_SIZE} | settings)) == 0
    return folder


def load(**settings):
    """The data that runs with these settings train."""
    resolved = workloads.resolve(Settings(**settings), 1)
    return load_planned(resolved, workloads.batch_plan(resolved, 1))


def load_planned(settings, plan):
    """The data that a run with these settings and this BatchPlan trains."""
    return datasets.loader(settings, plan)()


def small_digits(folder):
    """Returns {the settings that read 323 training and 60 held-out digits}, which are written into the folder."""
    small_data.write_digits(folder / "mnist", small_data.NUM_TRAIN)
    return {"dataset": "mnist", "data_dir": folder / "mnist"}

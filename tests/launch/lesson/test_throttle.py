"""Reading that is slowed down: in every format, below the folder and nowhere else."""

import json
import os

import numpy as np
import pytest

from common.data.formats import FORMATS
from launch.lesson.throttle import throttled
from tests.common.data.test_formats import written
from tests.support.mistakes import refused
from tests.support.running import BIN, completed

NUM_SAMPLES = 40
DATA = (np.zeros((NUM_SAMPLES, 2500), np.float32), np.zeros(NUM_SAMPLES, np.int64))
NUM_BYTES = sum(array.nbytes for array in DATA)
# Reads every sample of each format; prints {format: seconds}.
READ = f"""
import json, sys, time
import numpy as np
from common.data import formats
from common.data.storage_use import Use
layout = np.dtype((np.float32, (2500,))), np.dtype(np.int64)
arrays = [np.empty({NUM_SAMPLES}, of_row) for of_row in layout]
seconds = {{}}
for name in {FORMATS}:
    module = formats.module_of(name)
    begun = time.perf_counter()
    module.Shard(f"{{sys.argv[1]}}/{{name}}/part-00000", layout, Use()).read(np.arange({NUM_SAMPLES}), arrays)
    seconds[name] = time.perf_counter() - begun
print(json.dumps(seconds))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the samples in every format."""
    place = tmp_path_factory.mktemp("samples")
    for name in FORMATS:
        (place / name).mkdir()
        written(place / name, name, DATA)
    return place


def seconds_of(folder):
    """{format: seconds} of reading it in another process."""
    done = completed(BIN / "python", "-c", READ, folder, variables=dict(os.environ))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.matrix
def test_every_format_is_read_at_the_rates_at_most(folder):
    rate, operations = 4 * NUM_BYTES, 400
    with throttled(folder, rate, operations):
        seconds_by_format = seconds_of(folder)
    least = dict.fromkeys(FORMATS, NUM_BYTES / rate)
    # The file of each sample is opened and read.
    least["files"] += 2 * NUM_SAMPLES / operations
    assert seconds_by_format.keys() == least.keys()
    assert {name: seconds for name, seconds in seconds_by_format.items() if seconds < least[name]} == {}


def test_other_folders_are_not_slowed_and_without_limits_nothing_is_preloaded(folder, tmp_path):
    variables_before = dict(os.environ)
    with throttled(tmp_path, 1, 0.1):
        # Any of these reads would take ten seconds there.
        assert max(seconds_of(folder).values()) < 10
    assert dict(os.environ) == variables_before
    with throttled(tmp_path, None, None):
        assert dict(os.environ) == variables_before


def test_without_a_compiler_it_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "/there/is/none")
    with refused("need a C compiler, and /there/is/none is none"), throttled(tmp_path, 1, None):
        pass

"""What a process holds while it reads an epoch stays within the budget, with data that is eight times as large."""

import json

import pytest

from common.data import manifest
from common.data.formats import FORMATS
from tests.support import converted
from tests.support.converted import IN_ORDER
from tests.support.running import BIN, completed

MIB = 2**20
# Reads some batches, then two epochs; prints by how many bytes the peak of its resident memory has grown meanwhile (proc(5): clear_refs).
READER = """
import json, re, sys, time
from pathlib import Path
import numpy as np
from common import workloads
from common.config import Settings
from common.data import datasets, sharding

def resident(name):
    return int(re.search(rf"^{name}:\\s+(\\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)[1]) * 1024

settings = workloads.resolve(Settings(**json.loads(sys.argv[1])), 1)
samples = datasets.loader(settings)().train
for epoch in (None, 0, 1):
    order = sharding.Epoch(len(samples), settings.batch_size, 1, epoch or 0, samples.streamed)
    indices, _ = sharding.training_shard(order, sharding.DataParallel(0, 1))
    for number, batch in enumerate(samples.batches(indices[:1] if epoch is None else indices)):
        # Training is at times slower than reading, which is then as far ahead as it may be.
        time.sleep(0.0005 if epoch and number % 1000 < 500 else 0)
    del batch
    if epoch is None:
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
print(resident("VmHWM") - before)
"""


@pytest.mark.matrix
@pytest.mark.parametrize("name", FORMATS)
def test_the_memory_of_reading_is_bounded(name, tmp_path):
    # A buffer of formats in order has 1,024 samples, of 3 KB each here; elsewhere samples are of 147 KB.
    workload, budget, copies = ("cnn", 10, 36) if name in IN_ORDER else ("resnet50", 12, 3)
    folder = converted.convert(tmp_path / "data", name, workload, copies=copies, file_size=4)
    assert manifest.read(folder).size_bytes > 8 * budget * MIB
    settings = {"workload": workload, "data_format": name, "data_dir": str(folder), "data_budget": budget, "batch_size": 8}
    settings |= {"num_workers": 1, "prefetch": 2}
    done = completed(BIN / "python", "-c", READER, json.dumps(settings))
    assert done.returncode == 0, done.stderr
    print(f"grown by {int(done.stdout) / MIB:.1f} MiB")
    assert 0 < int(done.stdout) < budget * MIB

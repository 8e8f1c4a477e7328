"""WebDataset: a tar file for each shard, in which the files of a sample, NUMBER.inputs.npy and NUMBER.targets.npy, follow each other.

The standard library's tarfile reads and writes it. The package webdataset reads the same files, and imports PyTorch, which a run on
TensorFlow does without.
"""

import io
import tarfile

from common.data.formats import NAMES
from common.data.formats.npy import as_npy, from_npy
from common.data.formats.shards import InOrder

IN_ORDER = True
NUM_FILES = 1
OPEN_BYTES = 2**16


def encode(inputs, targets):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for number, sample in enumerate(zip(inputs, targets, strict=True)):
            for name, array in zip(NAMES, sample, strict=True):
                content = as_npy(array)
                member = tarfile.TarInfo(f"{number:07d}.{name}.npy")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return {".tar": stream.getvalue()}


class Shard(InOrder):
    def __init__(self, stem, layout, use):
        super().__init__(use)
        self._path = f"{stem}.tar"

    def records(self):
        with tarfile.open(self._path, "r:") as archive:
            arrays = []
            while member := archive.next():
                arrays.append(from_npy(archive.extractfile(member).read()))
                # It keeps all members otherwise.
                archive.members = []
                if len(arrays) == len(NAMES):
                    yield arrays
                    arrays = []

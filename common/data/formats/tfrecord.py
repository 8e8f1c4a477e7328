"""TFRecord: a file for each shard, with a tf.train.Example of two bytes features, `inputs` and `targets`, for each sample.

A record is its length in 8 bytes, the masked CRC-32C of these, the message, and its masked CRC-32C, little-endian (tensorflow.org,
Tutorials, TFRecord format details). The libraries protobuf and google-crc32c read the parts, since importing TensorFlow takes seconds,
which a run on PyTorch need not spend.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from common.data.formats import NAMES, Layout
from common.data.storage_use import Use

IN_ORDER = True
NUM_FILES = 1
OPEN_BYTES = 2**17
LENGTH, CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
# The part of tensorflow/core/example that is used here: features of bytes.
EXAMPLE = """
name: "tandem_example.proto" package: "tensorflow" syntax: "proto3"
message_type { name: "BytesList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type {
  name: "Feature"
  field { name: "bytes_list" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".tensorflow.BytesList" }
}
message_type {
  name: "Features"
  field { name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".tensorflow.Features.FeatureEntry" }
  nested_type {
    name: "FeatureEntry"
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".tensorflow.Feature" }
    options { map_entry: true }
  }
}
message_type {
  name: "Example"
  field { name: "features" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".tensorflow.Features" }
}
"""
# A pool apart from that of TensorFlow's own descriptors, which may be in the same process.
POOL = descriptor_pool.DescriptorPool()
POOL.Add(text_format.Parse(EXAMPLE, descriptor_pb2.FileDescriptorProto()))
# The fields of a class that is made at run time are unknown to a checker of types.
Example: Any = message_factory.GetMessageClass(POOL.FindMessageTypeByName("tensorflow.Example"))


def encode(inputs: np.ndarray, targets: np.ndarray) -> dict[str, bytes]:
    parts = []
    for sample in zip(inputs, targets, strict=True):
        example = Example()
        for name, array in zip(NAMES, sample, strict=True):
            example.features.feature[name].bytes_list.value.append(array.tobytes())
        message = example.SerializeToString(deterministic=True)
        length = LENGTH.pack(len(message))
        parts += [length, _masked(length), message, _masked(message)]
    return {".tfrecord": b"".join(parts)}


class Shard:
    """A shard that is read from the front: the rows between those that are asked for are read too. One thread reads at a time."""

    def __init__(self, stem: Path, layout: Layout, use: Use) -> None:
        self._path, self._layout, self._use = f"{stem}.tfrecord", layout, use
        self._remaining: Iterator[list[np.ndarray]] | None = None
        self._next_index = 0

    def read(self, indices: np.ndarray, rows: Sequence[np.ndarray]) -> None:
        """Reads the rows at these ascending indices; the file is opened again for a row that has been passed."""
        if self._remaining is None or indices[0] < self._next_index:
            self._remaining, self._next_index = self._samples(), 0
            self._use.opened(1)
        for place, index in enumerate(indices):
            sample = next(islice(self._remaining, int(index) - self._next_index, None), None)
            if sample is None:
                raise EOFError("it ends before its last sample")
            self._next_index = int(index) + 1
            for array, values in zip(rows, sample, strict=True):
                array[place] = values

    def _samples(self) -> Iterator[list[np.ndarray]]:
        """Yields the inputs and targets of each sample, from the front of the file."""
        with open(self._path, "rb") as file:
            while length := file.read(LENGTH.size):
                _check(length, file.read(CHECKSUM.size))
                message = file.read(*LENGTH.unpack(length))
                _check(message, file.read(CHECKSUM.size))
                features = Example.FromString(message).features.feature
                yield [
                    np.frombuffer(features[name].bytes_list.value[0], row_type.base).reshape(row_type.shape)
                    for name, row_type in zip(NAMES, self._layout, strict=True)
                ]


def _masked(content: bytes) -> bytes:
    checksum = google_crc32c.value(content)
    return CHECKSUM.pack((((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _check(content: bytes, checksum: bytes) -> None:
    if _masked(content) != checksum:
        raise ValueError("a record does not have its checksum")

"""TFRecord: a file for each shard, with a tf.train.Example of two bytes features, `inputs` and `targets`, for each sample.

A record is its length in 8 bytes, the masked CRC-32C of these, the message, and its masked CRC-32C, little-endian (tensorflow.org,
Tutorials, TFRecord format details). The libraries protobuf and google-crc32c read the parts, since importing TensorFlow takes seconds,
which a run on PyTorch does without.
"""

import struct
from itertools import islice

import google_crc32c
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from common.data.formats import NAMES

IN_ORDER = True
NUM_FILES = 1
OPEN_BYTES = 2**17
LENGTH, CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
# tensorflow/core/example, as far as it is used here: features of bytes.
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
# Apart from TensorFlow's own descriptors, which may be in the same process.
POOL = descriptor_pool.DescriptorPool()
POOL.Add(text_format.Parse(EXAMPLE, descriptor_pb2.FileDescriptorProto()))
Example = message_factory.GetMessageClass(POOL.FindMessageTypeByName("tensorflow.Example"))


def encode(inputs, targets):
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
    """It is read from the front: the rows between those that are asked for are read too. One thread reads at a time."""

    def __init__(self, stem, layout, use):
        self._path, self._layout, self._use = f"{stem}.tfrecord", layout, use
        self._rest, self._next = None, 0

    def read(self, indices, rows):
        """Reads the rows at these ascending indices; the file is opened again for a row that has been passed."""
        if self._rest is None or indices[0] < self._next:
            self._rest, self._next = self._samples(), 0
            self._use.opened(1)
        for place, index in enumerate(indices):
            sample = next(islice(self._rest, int(index) - self._next, None), None)
            if sample is None:
                raise EOFError("it ends before its last sample")
            self._next = int(index) + 1
            for array, values in zip(rows, sample, strict=True):
                array[place] = values

    def _samples(self):
        """Yields the inputs and targets of each sample, from the front of the file."""
        with open(self._path, "rb") as file:
            while length := file.read(LENGTH.size):
                _check(length, file.read(CHECKSUM.size))
                message = file.read(*LENGTH.unpack(length))
                _check(message, file.read(CHECKSUM.size))
                features = Example.FromString(message).features.feature
                yield [
                    np.frombuffer(features[name].bytes_list.value[0], of_row.base).reshape(of_row.shape)
                    for name, of_row in zip(NAMES, self._layout, strict=True)
                ]


def _masked(content):
    checksum = google_crc32c.value(content)
    return CHECKSUM.pack((((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _check(content, checksum):
    if _masked(content) != checksum:
        raise ValueError("a record does not have its checksum")

"""TFRecord: a file for each shard, with a tf.train.Example of two bytes features, `inputs` and `targets`, for each sample.

A record is its length in 8 bytes, the masked CRC-32C of these, the message, and its masked CRC-32C, little-endian (tensorflow.org,
Tutorials, TFRecord format details). The libraries protobuf and google-crc32c read the parts, since importing TensorFlow takes seconds,
which a run on PyTorch does without.
"""

import struct

import google_crc32c
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from common.data.formats import NAMES
from common.data.formats.shards import InOrder

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


class Shard(InOrder):
    def __init__(self, stem, layout, use):
        super().__init__(use)
        self._path, self._layout = f"{stem}.tfrecord", layout

    def records(self):
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

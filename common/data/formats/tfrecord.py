"""TFRecord: a file for each shard, with a tf.train.Example of two bytes features, `inputs` and `targets`, for each sample.

A record is its length in 8 bytes, the masked CRC-32C of these, the message, and its masked CRC-32C, little-endian (tensorflow.org,
Tutorials, TFRecord format details). The libraries protobuf and google-crc32c read the parts, since importing TensorFlow takes seconds,
which a run on PyTorch does without.
"""

import struct

import google_crc32c
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from common.data.formats.in_order import InOrder

IN_ORDER = True
NUM_FILES = 1
OPEN_BYTES = 2**17
LENGTH, CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
NAMES = ("inputs", "targets")


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
    def __init__(self, stem, layout, use):
        self._path, self._layout, self._use = f"{stem}.tfrecord", layout, use
        self.read = InOrder(self._records).read

    def _records(self):
        self._use.opened(1)
        with open(self._path, "rb") as file:
            while length := file.read(LENGTH.size):
                _check(length, file.read(CHECKSUM.size))
                message = file.read(*LENGTH.unpack(length))
                _check(message, file.read(CHECKSUM.size))
                features = Example.FromString(message).features.feature
                yield [
                    np.frombuffer(features[name].bytes_list.value[0], of_row.dtype).reshape(of_row.shape)
                    for name, of_row in zip(NAMES, self._layout, strict=True)
                ]


def _masked(content):
    checksum = google_crc32c.value(content)
    return CHECKSUM.pack((((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _check(content, checksum):
    if _masked(content) != checksum:
        raise ValueError("a record does not have its checksum")


def _example_class():
    """Returns the class of tf.train.Example (tensorflow/core/example), as far as it is used here: features of bytes.

    Its descriptors lie apart from TensorFlow's own, which may be in the same process.
    """
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="tandem_example.proto", package="tensorflow", syntax="proto3")

    def message(name, within=file.message_type, **fields):
        descriptor = within.add(name=name)
        for number, (field, (of_type, label)) in enumerate(fields.items(), 1):
            of_message = {"type": kind.TYPE_MESSAGE, "type_name": f".tensorflow.{of_type}"}
            type_fields = {"type": of_type} if isinstance(of_type, int) else of_message
            descriptor.field.add(name=field, number=number, label=label, **type_fields)
        return descriptor

    single, repeated = kind.LABEL_OPTIONAL, kind.LABEL_REPEATED
    message("BytesList", value=(kind.TYPE_BYTES, repeated))
    message("Feature", bytes_list=("BytesList", single))
    features = message("Features", feature=("Features.FeatureEntry", repeated))
    entry = message("FeatureEntry", features.nested_type, key=(kind.TYPE_STRING, single), value=("Feature", single))
    entry.options.map_entry = True
    message("Example", features=("Features", single))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


Example = _example_class()

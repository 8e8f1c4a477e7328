"""How many times as many samples a second our reading gives as PyTorch's DataLoader and tf.data, from the same files, as a table.

python -m tests.bench.data [--workers 0,1] [--rounds 7]

Every reader gives batches of 16 digits in random order, as tensors, to a loop that does nothing else; all of an epoch is in the page cache.
The DataLoader reads a batch at a time, with the same library as ours; its workers are processes. tf.data reads TFRecord files in order, and
shuffles within a buffer of 1,024 as ours does. In every round each is measured once, in turns.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from common.data import manifest, sharding
from tests.bench import shared
from tests.support import converted

BATCH, COPIES = 16, 4
COLUMNS = ("format", "workers", "theirs", "ours (samples/s)", "theirs (samples/s)", "ours / theirs: median (range)")


@dataclass(frozen=True)
class Arguments:
    """What is measured, and how often."""

    workers: str = "0,1"
    """Numbers of workers, separated by commas."""
    rounds: int = 7
    """Times that each is measured."""


def run(arguments):
    with tempfile.TemporaryDirectory() as folder:
        folders = {name: Path(folder, name) for name in ("npy", "hdf5", "files", "tfrecord")}
        for name, path in folders.items():
            converted.convert(path, name, copies=COPIES, file_size=4)
        print(shared.head(COLUMNS))
        for name, path in folders.items():
            for workers in map(int, arguments.workers.split(",")):
                pair = ours(name, path, workers), (from_tf_data if name == "tfrecord" else from_data_loader)(name, path, workers)
                print(line(name, workers, *measured(pair, arguments.rounds)), flush=True)


def line(name, workers, ours, theirs):
    """A line of the table, of samples a second."""
    library = "tf.data" if name == "tfrecord" else "DataLoader"
    return shared.row(
        (name, workers, library, f"{median(ours):.0f}", f"{median(theirs):.0f}", shared.with_range(shared.ratios(ours, theirs)))
    )


def measured(readers, num_rounds):
    """Samples a second of each reader, a function that gives an epoch's batches, in each round but the first, which fills caches."""

    def rate(reader, number):
        begun, num_samples = time.perf_counter(), 0
        for inputs, _ in reader(number):
            num_samples += len(inputs)
        return num_samples / (time.perf_counter() - begun)

    return [rates[1:] for rates in shared.in_turns(rate, dict(enumerate(readers)), num_rounds + 1).values()]


def ours(name, folder, workers):
    import torch

    data = converted.load(data_format=name, data_dir=folder, num_workers=workers)

    def epoch(number):
        indices, _ = sharding.training_shard(len(data.train), BATCH, "drop", 1, number, 0, 1, streamed=data.train.streamed)
        return (tuple(map(torch.from_numpy, arrays)) for arrays in data.train.batches(indices))

    return epoch


def from_data_loader(name, folder, workers):
    import torch

    ahead = {"num_workers": workers, "prefetch_factor": 2, "persistent_workers": True} if workers else {}
    loader = torch.utils.data.DataLoader(Samples(name, folder), BATCH, shuffle=True, drop_last=True, **ahead)
    return lambda _: loader


class Samples:
    """The training samples of a folder as a Dataset of PyTorch, which a worker opens when it reads the first."""

    def __init__(self, name, folder):
        self.name, self.folder, self.written = name, folder, manifest.read(folder)
        self.opened = {}

    def __len__(self):
        return self.written.num_samples["train"]

    def __getitems__(self, indices):
        import torch

        return [tuple(torch.as_tensor(np.asarray(value)) for value in self.sample(index)) for index in indices]

    def sample(self, index):
        number, row = divmod(index, self.written.samples_per_file)
        stem = self.folder / f"train-{number:05d}"
        if self.name == "files":
            record = np.load(f"{stem}.samples/{row:07d}.npy")
            return record["inputs"], record["targets"]
        if number not in self.opened:
            self.opened[number] = self.open(stem)
        inputs, targets = self.opened[number]
        return np.array(inputs[row]), targets[row]

    def open(self, stem):
        if self.name == "npy":
            return tuple(np.load(f"{stem}.{part}.npy", mmap_mode="r") for part in ("inputs", "targets"))
        import h5py

        file = h5py.File(f"{stem}.h5", locking=False)
        return file["inputs"], file["targets"]


def from_tf_data(_, folder, workers):
    import tensorflow as tf

    names = sorted(str(path) for path in folder.glob("train-*.tfrecord"))
    feature = tf.io.FixedLenFeature([], tf.string)

    def parse(examples):
        example = tf.io.parse_example(examples, {"inputs": feature, "targets": feature})
        inputs = tf.reshape(tf.io.decode_raw(example["inputs"], tf.float32), (-1, 28, 28))
        return inputs, tf.reshape(tf.io.decode_raw(example["targets"], tf.int64), (-1,))

    def epoch(number):
        files = tf.data.Dataset.from_tensor_slices(names).shuffle(len(names), number)
        samples = tf.data.TFRecordDataset(files).shuffle(1024, number).batch(BATCH, drop_remainder=True).map(parse)
        return samples.prefetch(2) if workers else samples

    return epoch


if __name__ == "__main__":
    shared.main(run, Arguments, __file__, __doc__)

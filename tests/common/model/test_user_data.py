"""The data of a user's file: what it draws follows from seed, epoch and samples, at every number of ranks."""

import threading

import numpy as np
import torch

from common import workloads
from common.data import datasets
from common.model import model_file, user_data
from common.ranks.watchdog import Watchdog
from common.training.batches import SampleBatches
from tests.support.mistakes import refused
from tests.support.user_models import PLAIN, settings_of, written

AUGMENTED = (
    PLAIN.replace("TensorDataset(inputs, targets), Ten", "Augmented(), Ten")
    + """
import random
import numpy as np

class Augmented:
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.tensor([torch.rand(()), np.random.rand(), random.random()]) + index, index % 4
"""
)
COLLATED = (
    PLAIN
    + """
def collate(samples):
    inputs, targets = zip(*samples)
    return torch.stack(inputs) + torch.rand(()), torch.stack(targets)
"""
)
# Of its samples the first draw nothing.
RARELY_AUGMENTED = AUGMENTED.replace(
    "    def __getitem__(self, index):\n",
    "    def __getitem__(self, index):\n        if index < 12:\n            return torch.zeros(3) + index, 0\n",
)


def read_with(path, rows, epoch=1, seed=1, **others):
    """Returns the inputs of batches of these rows."""
    settings = workloads.resolve(settings_of(path, seed=seed, **others), 1)
    samples, weights = datasets.loader(settings)().train, np.ones(np.shape(rows))
    torch.rand(np.random.randint(1, 9))
    batches = list(SampleBatches(samples, np.array(rows), weights, np.zeros(len(rows)), settings, Watchdog(0, None), epoch))
    return [batch.inputs.numpy() for batch in batches]


def test_data_that_have_gradients_or_another_type_are_read(tmp_path):
    text = PLAIN.replace("reshape(20, 3) / 60", "reshape(20, 3).bfloat16().requires_grad_()")
    settings = workloads.resolve(settings_of(written(tmp_path, text)), 1)
    samples = datasets.loader(settings)().train
    inputs, _ = user_data.in_precision(samples.batch(np.array([3, 4])), "fp32")
    assert (inputs.tolist(), inputs.requires_grad) == ([[9, 10, 11], [12, 13, 14]], False)


def test_batches_of_an_evaluation_have_no_padding_and_a_rank_without_samples_has_one_of_weight_0(tmp_path):
    settings = workloads.resolve(settings_of(written(tmp_path)), 1)
    data = datasets.loader(settings)()
    indices, weights = np.array([[3, 4, 5], [6, 0, 1], [0, 1, 2]]), np.array([[1.0, 1, 1], [1, 0, 0], [0, 0, 0]])
    batches = list(SampleBatches(data.test, indices, weights, np.zeros(3), settings, Watchdog(0, None)))
    assert [batch.weights.tolist() for batch in batches] == [[1, 1, 1], [1], [0]]
    assert [batch.targets.tolist() for batch in batches] == [[3, 0, 1], [2], [0]]


def test_random_numbers_of_a_sample_follow_from_seed_epoch_and_index(tmp_path):
    path = written(tmp_path, AUGMENTED)

    def inputs(rows, **others):
        return np.concatenate(read_with(path, rows, **others))

    whole = inputs([[3, 0], [4, 7]])
    # Another number of ranks, another order.
    np.testing.assert_array_equal(np.concatenate([inputs([[7], [3]]), inputs([[4], [0]])]), whole[[3, 0, 2, 1]])
    assert len(np.unique(whole % 1)) == whole.size
    assert not np.isin(whole, inputs([[3, 0], [4, 7]], epoch=2)).any()
    assert not np.isin(whole, inputs([[3, 0], [4, 7]], seed=2)).any()


def test_random_numbers_of_collate_follow_from_seed_epoch_and_the_samples_of_a_batch(tmp_path):
    path = written(tmp_path, COLLATED)
    first, second = read_with(path, [[3, 0], [4, 7]])
    np.testing.assert_array_equal(read_with(path, [[4, 7], [3, 0]]), [second, first])
    for changed in (read_with(path, [[3, 0]], epoch=2), read_with(path, [[3, 0]], seed=2), read_with(path, [[3, 1]])):
        assert (changed[0][0] != first[0]).all()
    assert (
        datasets.loader(workloads.resolve(settings_of(path), 1))().digest
        == datasets.loader(workloads.resolve(settings_of(path), 1))().digest
    )


def test_samples_that_draw_late_are_seeded_too(tmp_path):
    path = written(tmp_path, RARELY_AUGMENTED)
    (whole,) = read_with(path, [[2, 15, 3, 13]])
    np.testing.assert_array_equal(read_with(path, [[2, 3]])[0], whole[[0, 2]])
    np.testing.assert_array_equal(np.concatenate(read_with(path, [[13], [15]])), whole[[3, 1]])
    assert len(np.unique(whole[[1, 3]] % 1)) == 6


def test_threads_read_the_same_batches_ahead_and_data_that_draw_are_refused(tmp_path, monkeypatch):
    rows, threads, sample = [[3, 0], [4, 7], [1, 2]], set(), user_data.sample

    def noted(*arguments):
        threads.add(threading.current_thread().name)
        return sample(*arguments)

    expected = read_with(written(tmp_path), rows)
    with monkeypatch.context() as changed:
        changed.setattr(user_data, "sample", noted)
        np.testing.assert_array_equal(read_with(written(tmp_path), rows, num_workers=2), expected)
    assert any(name.startswith("reader") for name in threads)
    for name, text in (("augmented.py", AUGMENTED), ("collated.py", COLLATED)):
        with refused("--num-workers is for data that draw no random numbers, and those of the --model do; leave it out"):
            read_with(written(tmp_path, text, name), rows, num_workers=1)


def test_what_a_file_draws_leaves_the_generator_of_dropout_as_it_was(tmp_path):
    file = model_file.read(str(written(tmp_path, AUGMENTED)), None)
    before = torch.get_rng_state()
    model_file.build(file, seed=5)
    train, _ = user_data.data_of(file)
    assert user_data.draws(file, train)
    assert not user_data.draws(file, [(1, 2)])
    user_data.seeded_samples(file, train, [3], 1)
    assert torch.equal(torch.get_rng_state(), before)

"""Whether runs have trained the same samples."""

import pytest

from launch.report.questions import same
from launch.report.runs import comparisons
from tests.support.made_records import made, typed

ORDER, OTHER = [f"{number:064x}" for number in (1, 2)], [f"{number:064x}" for number in (1, 3)]


def record(backend, num_ranks=2, digests=ORDER, data="a" * 64, **changes):
    sizes = {"num_ranks": num_ranks, "data_parallel_degree": num_ranks, "global_batch": 32}
    return made(backend=backend, sample_digests=digests, first_batch_digest=data, scaling="strong", **sizes | changes)


def sentence(*records):
    (comparison,) = comparisons(typed(records))
    return same.answer(comparison).sentences[0]


def test_runs_of_one_seed_and_global_batch_train_the_same_samples():
    text = sentence(record("ddp"), record("fsdp"), record("single", 1, data="b" * 64))
    assert "Runs of one seed and global batch train the same samples in the same order." in text


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"digests": OTHER}, "fsdp at 2 ranks, seed 1, other samples in epoch 2, or in another order, than ddp at 2 ranks"),
        ({"num_ranks": 4, "digests": OTHER}, "fsdp at 4 ranks, seed 1, other samples in epoch 2"),
        ({"data": "b" * 64}, "fsdp at 2 ranks, seed 1, other data in the first step than ddp at 2 ranks"),
    ],
)
def test_other_samples_or_data_are_named(changed, words):
    assert f"NOT the same samples: {words}" in sentence(record("ddp"), record("fsdp", **changed))


@pytest.mark.parametrize("changed", [{"digests": []}, {"digests": OTHER, "seed": 2}, {"digests": OTHER, "global_batch": 64}])
def test_runs_that_cannot_be_compared_say_nothing(changed):
    assert "samples" not in sentence(record("ddp"), record("fsdp", **changed))

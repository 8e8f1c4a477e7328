"""Whether runs have trained the same samples: by digests of the order of an epoch, and of the data of the first step."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from common.record.definition import Record
from common.words import ranks_of


class Pair(NamedTuple):
    """A run and an earlier one of its seed and global batch, and how its samples differ; None where they do not."""

    record: Record
    reference: Record
    difference: str | None

    def __str__(self) -> str:
        names = [f"{record.backend} at {ranks_of(record.num_ranks)}" for record in (self.record, self.reference)]
        return f"{names[0]}, seed {self.record.seed}, {self.difference} than {names[1]}"


def pairs(records: Iterable[Record]) -> Iterator[Pair]:
    """Yields the pairs of a run and the first with its seed, global batch and number of shards, or with another number of shards."""
    references: dict[tuple[int, int | None], dict[int, Record]] = {}
    for record in records:
        of_batch = references.setdefault((record.seed, record.global_batch), {})
        yield from (
            Pair(record, reference, difference(record, reference))
            for reference in of_batch.values() if record.sample_digests and reference.sample_digests
        )  # fmt: skip
        of_batch.setdefault(record.data_parallel_degree, record)


def difference(record: Record, reference: Record) -> str | None:
    """Describes how the samples of a run differ from those of another one with its seed and global batch; None where no digest does."""
    digests = zip(record.sample_digests, reference.sample_digests, strict=False)
    epoch = next((number for number, (digest, expected) in enumerate(digests, 1) if digest != expected), None)
    if epoch:
        return f"other samples in epoch {epoch}, or in another order,"
    # Each shard has its own data and weights.
    are_alike = record.data_parallel_degree == reference.data_parallel_degree
    if are_alike and None not in (data := (record.first_batch_digest, reference.first_batch_digest)) and data[0] != data[1]:
        return "other data in the first step"
    return None

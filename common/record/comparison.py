"""How the settings of two runs differ wherever the run time depends on them, and whether they have trained the same samples.

The latter is told by digests of the order of an epoch, and of the data of the first step.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from common import backends
from common.command_line import flag
from common.config import Role, Settings, with_role
from common.declarations import own_settings
from common.record.definition import Record
from common.words import ranks_of
from common.workloads import SIZES

# How data is read from disk, like workload and scaling, makes groups; of the device the one that was used is compared.
MAY_DIFFER = {*with_role(Role.MAY_DIFFER), *backends.variant_settings()}
COMPARED = [field.name for field in dataclasses.fields(Settings) if field.name not in MAY_DIFFER and field.name not in own_settings()]
# Of the runs of one backend.
COMPARED_OF_BACKEND = [name for name in own_settings() if name not in MAY_DIFFER]
# Settings of the model, which the digest of a workload has as they come out: a default may be given.
OF_MODEL = (*SIZES, "model_args")


def setting_differences(settings: Settings, first_settings: Settings, names: Iterable[str]) -> dict[str, str]:
    """Returns by name a text on each of these settings that differs."""
    values = {name: (getattr(settings, name), getattr(first_settings, name)) for name in names}
    return {name: f"{flag(name)} {value} and {first_value}" for name, (value, first_value) in values.items() if value != first_value}


class SamplePair(NamedTuple):
    """A run and an earlier one of its seed and global batch, and how its samples differ; None where they do not."""

    record: Record
    reference: Record
    difference: str | None

    def __str__(self) -> str:
        names = [f"{record.backend} at {ranks_of(record.num_ranks)}" for record in (self.record, self.reference)]
        return f"{names[0]}, seed {self.record.seed}, {self.difference} than {names[1]}"


def sample_pairs(records: Iterable[Record]) -> Iterator[SamplePair]:
    """Yields the pairs of a run and the first with its seed, global batch and number of shards, or with another number of shards."""
    references: dict[tuple[int, int | None], dict[int, Record]] = {}
    for record in records:
        of_batch = references.setdefault((record.seed, record.global_batch), {})
        yield from (
            SamplePair(record, reference, sample_difference(record, reference))
            for reference in of_batch.values() if record.sample_digests and reference.sample_digests
        )  # fmt: skip
        of_batch.setdefault(record.data_parallel_degree, record)


def sample_difference(record: Record, reference: Record) -> str | None:
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

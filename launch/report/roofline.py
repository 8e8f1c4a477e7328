"""The most that a rank can compute: by the fastest matrix product, and by the bytes that a copy moves in a second (a roofline)."""

from collections.abc import Hashable, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from common.cost import intensity
from common.record import records
from common.record.definition import Record
from launch.report import limits, volumes
from launch.report.entries import Entry
from launch.report.limits import GIGA, Limit
from launch.report.statistics import present
from launch.report.words import ranks_of


class Roofline(NamedTuple):
    """The limit by products, the floating-point operations for each byte of a training, and the bytes a second of a copy."""

    limit: Limit
    flops_per_byte: float
    bytes_per_second: float

    @property
    def copy_flops_per_second(self) -> float:
        """What a rank computes while it moves its bytes as fast as a copy."""
        return self.flops_per_byte * self.bytes_per_second

    @property
    def flops_per_second(self) -> float:
        """What a rank computes at most."""
        return min(self.limit.flops_per_second, self.copy_flops_per_second)


def sentences(name: str, candidates: Sequence[Entry], limit_of: dict[Hashable, Limit]) -> list[str]:
    """Returns the sentence on what limits the entries of one size, and on the one that comes nearest to it; none where it is not known."""
    roofline, rates = of(candidates, limit_of), [(rate, entry) for entry in candidates if (rate := _rate(entry))]
    if not roofline or not rates:
        return []
    rate, nearest = max(rates, key=lambda pair: pair[0])
    copies, products = (speed / GIGA for speed in (roofline.copy_flops_per_second, roofline.limit.flops_per_second))
    moved = f"{roofline.flops_per_byte:.0f} FLOPs a byte at a copy's {roofline.bytes_per_second / GIGA:.0f} GB/s"
    limits_of = f"products allow {products:.0f} GFLOP/s, {moved} {copies:.0f}"
    percent = 100 * rate / roofline.flops_per_second
    return [f"{name}, {ranks_of(nearest.num_ranks)}: {limits_of}; {nearest.backend} reaches {percent:.0f} % of the lower limit."]


def of(candidates: Sequence[Entry], limit_of: dict[Hashable, Limit]) -> Roofline | None:
    """Returns the roofline of the entries of one size; None where a part of it is not known, and on GPUs, whose memory no run copies."""
    records = [record for entry in candidates for record in entry.ok if not record.environment.gpu]
    limit = next((limit_of[key] for key in map(limits.key_of, records) if key in limit_of), None)
    flops_per_byte = next((value for record in records if (value := _flops_per_byte(record))), None)
    copies = present(speed for record in records if record.machine_noise for speed in record.machine_noise.copy_bytes_per_second)
    return Roofline(limit, flops_per_byte, float(np.median(copies))) if limit and flops_per_byte and copies else None


def _rate(entry: Entry) -> float | None:
    return entry.trimmed_mean(attrgetter("flops_per_second_per_rank"))


def _flops_per_byte(record: Record) -> float | None:
    settings = volumes.theory_settings(record)
    if settings is None:
        return None
    return intensity.flops_per_byte(settings, records.plan_of(record).local_batch)

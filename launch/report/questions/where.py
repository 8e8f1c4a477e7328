"""Where the time in MPI went in traced runs: control messages, such as Horovod's negotiation, and payload."""

from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from common.record.definition import Record
from common.record.trace_parts import MpiOfRank
from common.terminal import Column, filled
from common.words import ranks_of
from launch.report.tables import BACKEND, MB, RANKS, Findings, in_unit, through

QUESTION = "Where did the time in MPI go?"


class Profile(NamedTuple):
    """A traced run, and what its rank 0 did in MPI. Without the kinds control and payload are not separated."""

    record: Record
    rank_0: MpiOfRank


def _of_kind(kind: str, key: str, profile: Profile) -> float | None:
    return getattr(getattr(profile.rank_0.kinds, kind), key) if profile.rank_0.kinds else None


def _kind(kind: str, key: str) -> Callable[[Profile], float | None]:
    return partial(_of_kind, kind, key)


COLUMNS: tuple[Column[Profile], ...] = (
    Column("workload", attrgetter("record.workload")),
    *through("record", BACKEND, RANKS),
    Column("in MPI (s)", lambda profile: profile.rank_0.communication_seconds, ".3f"),
    Column("control calls", _kind("control", "num_calls")),
    Column("control (s)", _kind("control", "seconds"), ".3f"),
    Column("payload calls", _kind("payload", "num_calls")),
    Column("payload (MB)", lambda profile: in_unit(_of_kind("payload", "size_bytes", profile), MB), ".1f"),
    Column("payload (s)", _kind("payload", "seconds"), ".3f"),
    Column(
        "payload bandwidth (MB/s)",
        lambda profile: in_unit(profile.rank_0.payload_bytes_per_second, MB) if profile.rank_0.kinds else None,
        ".0f",
    ),
)


def answer(records: Iterable[Record]) -> Findings:
    """Answers for rank 0 of the traced runs with an MPI profile."""
    ordered = sorted(records, key=attrgetter("workload", "num_ranks", "backend", "repeat"))
    profiles = [Profile(record, rank_0) for record in ordered if record.mpi_profile and (rank_0 := record.mpi_profile.ranks.get("0"))]
    return Findings([_sentence(*profile) for profile in profiles], filled("Rank 0 in MPI", COLUMNS, profiles))


def _sentence(record: Record, rank_0: MpiOfRank) -> str:
    subject = f"{record.workload}, {record.backend} at {ranks_of(record.num_ranks)}"
    total = f"{subject}: rank 0 spent {rank_0.communication_seconds:.2f} s in MPI"
    if not rank_0.kinds:
        return f"{total}; the preloaded library does not separate control from payload."
    control, payload = rank_0.kinds.control, rank_0.kinds.payload
    mean_bytes = control.size_bytes / max(control.num_calls, 1)
    in_control = f"{control.seconds:.2f} s in control ({control.num_calls} calls of {mean_bytes:.0f} bytes on average)"
    if not payload.num_calls:
        return f"{total}: {in_control}, no payload."
    bandwidth = rank_0.payload_bytes_per_second
    speed = f" at {bandwidth / MB:.0f} MB/s" if bandwidth else ""
    return f"{total}: {in_control}, {payload.seconds:.2f} s in payload ({payload.size_bytes / MB:.0f} MB{speed})."

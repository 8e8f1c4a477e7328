"""Where the time in MPI went in traced runs: control messages, such as Horovod's negotiation, and payload. Pure."""

from operator import attrgetter

from launch.report.tables import BACKEND, MB, RANKS, Column, filled
from launch.report.words import ranks_of

QUESTION = "Where did the time in MPI go?"
COLUMNS = (
    Column("workload"), BACKEND, RANKS, Column("in MPI (s)", ".3f"), Column("control calls"), Column("control (s)", ".3f"),
    Column("payload calls"), Column("payload (MB)", ".1f"), Column("payload (s)", ".3f"), Column("payload bandwidth (MB/s)", ".0f"),
)  # fmt: skip


def answer(records):
    """(sentences, tables) on rank 0 of the traced runs with an MPI profile."""
    ordered = sorted(records, key=attrgetter("workload", "num_ranks", "backend", "repeat"))
    profiles = [(record, rank_0) for record in ordered if record.mpi_profile and (rank_0 := record.mpi_profile.ranks.get("0"))]
    return [_sentence(*profile) for profile in profiles], filled("Rank 0 in MPI", COLUMNS, [_row(*profile) for profile in profiles])


def _sentence(record, rank_0):
    subject = f"{record.workload}, {record.backend} at {ranks_of(record.num_ranks)}"
    total = f"{subject}: rank 0 spent {rank_0['communication_seconds']:.2f} s in MPI"
    if not rank_0["kinds"]:
        return f"{total}; the preloaded library does not separate control from payload."
    control, payload = rank_0["kinds"]["control"], rank_0["kinds"]["payload"]
    mean_bytes = control["size_bytes"] / max(control["num_calls"], 1)
    in_control = f"{control['seconds']:.2f} s in control ({control['num_calls']} calls of {mean_bytes:.0f} bytes on average)"
    if not payload["num_calls"]:
        return f"{total}: {in_control}, no payload."
    bandwidth = rank_0["payload_bytes_per_second"]
    speed = f" at {bandwidth / MB:.0f} MB/s" if bandwidth else ""
    return f"{total}: {in_control}, {payload['seconds']:.2f} s in payload ({payload['size_bytes'] / MB:.0f} MB{speed})."


def _row(record, rank_0):
    beginning = record.workload, record.backend, record.num_ranks, rank_0["communication_seconds"]
    if not rank_0["kinds"]:
        return *beginning, None, None, None, None, None, None
    control, payload = rank_0["kinds"]["control"], rank_0["kinds"]["payload"]
    bandwidth = rank_0["payload_bytes_per_second"]
    return (
        *beginning, control["num_calls"], control["seconds"], payload["num_calls"], payload["size_bytes"] / MB, payload["seconds"],
        None if bandwidth is None else bandwidth / MB,
    )  # fmt: skip

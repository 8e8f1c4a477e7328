"""Where the time in the MPI of traced runs goes: control messages, such as Horovod's, and payload."""

from operator import attrgetter

from common.record.definition import Record
from common.record.parts import MpiOfRank
from common.terminal import filled
from common.words import ranks_of
from launch.report.findings import MB, Cells, Findings, in_unit
from launch.report.runs import Runs

QUESTION = "Where did the time in MPI go?"


def answer(runs: Runs) -> Findings:
    """Answers for rank 0 of the traced runs with an MPI profile."""
    ordered = sorted(runs.traced, key=attrgetter("workload", "num_ranks", "backend", "repeat"))
    profiles = [(record, rank) for record in ordered if record.mpi_profile and (rank := record.mpi_profile.ranks.get("0"))]
    return Findings([_sentence(*profile) for profile in profiles], filled("Rank 0 in MPI", [_row(*profile) for profile in profiles]))


def _row(record: Record, rank_0: MpiOfRank) -> Cells:
    """Returns the row of a run. Without the kinds control and payload are not separated."""
    row = {"workload": record.workload, "backend": record.backend, "ranks": record.num_ranks, "in MPI (s)": rank_0.communication_seconds}
    if not rank_0.kinds:
        return row
    control, payload = rank_0.kinds.control, rank_0.kinds.payload
    return row | {
        "control calls": control.num_calls,
        "control (s)": control.seconds,
        "payload calls": payload.num_calls,
        "payload (MB)": payload.size_bytes / MB,
        "payload (s)": payload.seconds,
        "payload bandwidth (MB/s)": in_unit(rank_0.payload_bytes_per_second, MB),
    }


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

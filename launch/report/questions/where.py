"""Where the time in MPI went, in the runs that were traced: control, by which ranks agree, apart from payload. Pure."""

from launch.display import ranks_of
from launch.report.tables import BACKEND, RANKS, Column, filled

QUESTION = "Where did the time in MPI go?"
MB = 10**6
COLUMNS = (
    Column("workload"), BACKEND, RANKS, Column("in MPI (s)", ".3f"), Column("control calls"), Column("control (s)", ".3f"),
    Column("payload calls"), Column("payload (MB)", ".1f"), Column("payload (s)", ".3f"), Column("payload bandwidth (MB/s)", ".0f"),
)  # fmt: skip


def profiled(found):
    """[(record, rank 0's part of its MPI profile)] of the traced runs that left one."""
    profiles = [(record, (record.get("mpi_profile") or {}).get("ranks", {}).get("0")) for record in found]
    return sorted(((record, rank_0) for record, rank_0 in profiles if rank_0), key=_order)


def answer(profiles):
    """(sentences, tables) of what `profiled` has found."""
    return [_sentence(*one) for one in profiles], filled("Rank 0 in MPI", COLUMNS, [_row(*one) for one in profiles])


def _order(profile):
    record, _ = profile
    return record["workload"], record["ranks"], record["backend"], record["repeat"]


def _sentence(record, rank_0):
    run = f"{record['workload']}, {record['backend']} at {ranks_of(record['ranks'])}"
    who = f"{run}: rank 0 was {rank_0['communication_seconds']:.2f} s in MPI"
    if not rank_0["kinds"]:
        return f"{who}; the library that traced it does not tell control from payload."
    control, payload = rank_0["kinds"]["control"], rank_0["kinds"]["payload"]
    agreeing = f"{control['seconds']:.2f} s of it to agree, in {control['num_calls']} calls of {_mean_bytes(control):.0f} bytes"
    if not payload["num_calls"]:
        return f"{who}, {agreeing}; no payload went through MPI."
    bandwidth = rank_0["payload_bytes_per_second"]
    speed = f" at {bandwidth / MB:.0f} MB/s" if bandwidth else ""
    return f"{who}, {agreeing}, and {payload['seconds']:.2f} s to move {payload['size_bytes'] / MB:.0f} MB{speed}."


def _mean_bytes(kind):
    return kind["size_bytes"] / kind["num_calls"] if kind["num_calls"] else 0.0


def _row(record, rank_0):
    head = record["workload"], record["backend"], record["ranks"], rank_0["communication_seconds"]
    if not rank_0["kinds"]:
        return *head, None, None, None, None, None, None
    control, payload = rank_0["kinds"]["control"], rank_0["kinds"]["payload"]
    bandwidth = rank_0["payload_bytes_per_second"]
    return (
        *head, control["num_calls"], control["seconds"], payload["num_calls"], payload["size_bytes"] / MB, payload["seconds"],
        None if bandwidth is None else bandwidth / MB,
    )  # fmt: skip

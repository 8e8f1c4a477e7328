"""The networks between nodes, as NCCL chose them."""

from collections.abc import Iterable

from common.record.definition import Record

# NCCL's name of TCP.
SOCKET = "Socket"


def notes(records: Iterable[Record]) -> list[str]:
    """Returns a sentence on runs in which NCCL used TCP between nodes; none where there is no such run."""
    num_runs = sum(record.environment.nccl_network == SOCKET for record in records)
    runs = "1 run" if num_runs == 1 else f"{num_runs} runs"
    return [f"NCCL used TCP between the nodes of {runs}: it found no plugin for a faster network (NCCL_NET)."] if num_runs else []

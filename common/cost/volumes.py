"""Bytes of state that a rank holds and bytes that it sends in a step: as counted in a run, and as theory expects them.

All functions return None for what the run has not counted, and where the backend declares no strategy of sharing.
"""

from common.config import Settings
from common.cost import sharing
from common.errors import UserError
from common.record.definition import Record
from common.workloads import WORKLOADS, source_of, workload_of

MB = 10**6


def state_bytes(record: Record) -> int | None:
    """Returns the bytes of parameters, gradients and optimizer state together where a step and the ranks have most."""
    if record.tensor_bytes_by_rank is None:
        return None
    points = vars(record.tensor_bytes_by_rank).values()
    return max(sum(bytes_of_rank) for point in points for bytes_of_rank in zip(*vars(point).values(), strict=True))


def sent_by_collective(record: Record) -> dict[str, float] | None:
    """Returns the bytes that a rank sends in a step by each collective: what it contributes, times nccl-tests' bus factor."""
    breakdown = record.step_breakdown
    if breakdown is None:
        return None
    return {name: sharing.bus_bytes(name, operation.num_bytes, record.num_ranks) for name, operation in breakdown.operations.items()}


def describe_collectives(record: Record) -> str | None:
    """Returns the collectives by which a rank sends in a step, with the MB of each, the largest first."""
    sent = sorted((sent_by_collective(record) or {}).items(), key=lambda item: -item[1])
    texts = {name: f"{num_bytes / MB:.2f}" for name, num_bytes in sent}
    return ", ".join(f"{name.replace('_', '-')} {text}" for name, text in texts.items() if float(text)) or None


def sent_bytes(record: Record) -> float | None:
    """Returns the bytes that a rank sends in a step."""
    sent = sent_by_collective(record)
    return sum(sent.values()) if sent is not None else None


def expected_state_bytes(record: Record) -> float | None:
    """Returns the state_bytes that the theory of the backend's strategy expects."""
    settings = theory_settings(record)
    return settings and sharing.state_bytes(record.backend, record.num_ranks, settings)


def expected_sent_bytes(record: Record) -> float | None:
    """Returns the sent_bytes that the formula of the backend's strategy expects."""
    settings = theory_settings(record)
    return settings and sharing.sent_bytes(record.backend, record.num_ranks, settings)


def theory_settings(record: Record) -> Settings | None:
    """Returns the settings of a run whose model is known without its file; None for others."""
    settings = record.settings
    if source_of(settings) not in WORKLOADS:
        return None
    try:
        workload_of(settings)
    except UserError:
        # A record from elsewhere may have sizes that its model has not.
        return None
    return settings

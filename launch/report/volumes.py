"""Bytes of state that a rank holds and that it sends in a step: as counted in a run, and as theory expects them. Pure.

All functions take a record and return None for what the run has not counted, and where the backend declares no way of sharing.
"""

from common.config import Settings
from common.cost import collectives, sharing
from common.workloads import WORKLOADS


def state_bytes(record):
    """Bytes of parameters, gradients and optimizer state together, at the point of a step and on the rank where they are most."""
    if record.tensor_bytes_by_rank is None:
        return None
    points = vars(record.tensor_bytes_by_rank).values()
    return max(sum(of_rank) for held in points for of_rank in zip(*vars(held).values(), strict=True))


def sent_by_collective(record):
    """{collective: bytes that a rank sends in a step}: the bytes that it contributes, times nccl-tests' bus factor."""
    breakdown = record.step_breakdown
    return breakdown and {
        name: collectives.bus_bytes(name, operation.num_bytes, sharing.group_size(record.backend, name, record.num_ranks))
        for name, operation in breakdown.operations.items()
    }


def sent_bytes(record):
    """Bytes that a rank sends in a step."""
    sent = sent_by_collective(record)
    return sum(sent.values()) if sent is not None else None


def expected_state_bytes(record):
    """As state_bytes, by the theory of the backend's way of sharing."""
    settings = _settings(record)
    return settings and sharing.state_bytes(record.backend, record.num_ranks, settings)


def expected_sent_bytes(record):
    """As sent_bytes, by the formula of the backend's way of sharing."""
    settings = _settings(record)
    return settings and sharing.sent_bytes(record.backend, record.num_ranks, settings)


def _settings(record):
    """The settings of a run that theory needs; None for a workload that is not known here, or that has the tokens of a file."""
    used = record.settings
    is_known = record.workload in WORKLOADS and not used.tokenizer
    return Settings(record.workload, precision=used.precision, optimizer=used.optimizer, momentum=used.momentum) if is_known else None

"""Bytes of state that a rank holds and that it sends in a step: as counted in a run, and as theory expects them. Pure.

All functions take a record and return None for what is not known: older records lack keys, and a backend may declare no way of sharing.
"""

from common import collectives, sharing
from common.config import Settings
from common.workloads import WORKLOADS


def state_bytes(run):
    """Bytes of parameters, gradients and optimizer state together, at the point of a step and on the rank where they are most."""
    points = (run.get("tensor_bytes_by_rank") or {}).values()
    return max((sum(of_rank) for point in points for of_rank in zip(*point.values(), strict=True)), default=None)


def sent_by_collective(run):
    """{collective: bytes that a rank sends in a step}: the bytes that it contributes, times nccl-tests' bus factor."""
    breakdown = run.get("step_breakdown")
    return breakdown and {
        name: collectives.bus_bytes(name, one["num_bytes"], sharing.group_size(run["backend"], name, run["num_ranks"]))
        for name, one in breakdown["operations"].items()
    }


def sent_bytes(run):
    """Bytes that a rank sends in a step."""
    found = sent_by_collective(run)
    return sum(found.values()) if found is not None else None


def expected_state_bytes(run):
    """As state_bytes, by the theory of the backend's way of sharing."""
    settings = _settings(run)
    return settings and sharing.state_bytes(run["backend"], run["num_ranks"], settings)


def expected_sent_bytes(run):
    """As sent_bytes, by the formula of the backend's way of sharing."""
    settings = _settings(run)
    return settings and sharing.sent_bytes(run["backend"], run["num_ranks"], settings)


def _settings(run):
    """The settings of a run that theory needs; None for a workload that is not known here, or that has the tokens of a file."""
    known = {name: run["settings"][name] for name in ("precision", "optimizer", "momentum") if name in run["settings"]}
    is_known = run["workload"] in WORKLOADS and not run["settings"].get("tokenizer")
    return Settings(workload=run["workload"], **known) if is_known else None

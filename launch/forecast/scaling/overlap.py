"""How exchanges overlap with the backward pass: one after the other, each no earlier than its gradients are ready. Pure.

The recurrence of MG-WFBP (Shi, Chu and Li 2019, arXiv:1912.09268, section 3; wait-free backpropagation: Zhang et al. 2017,
arXiv:1706.03292): end_k = max(ready_k, end_(k-1)) + T_k, and step = forward + max(backward, end_K) + optimizer.
"""

from typing import NamedTuple

# A backward pass takes twice the operations of a forward pass, since it computes two products for each of that (common/model/families.py).
FORWARD_SHARE = 1 / 3


class Exchange(NamedTuple):
    """A collective of a step. `ready_share`: the part of the step's computation after which it may start; `size_bytes`: the whole buffer,
    the same at every number of ranks."""

    ready_share: float
    size_bytes: float
    collective: str


def step_seconds(compute_seconds, exchanges, exchange_seconds):
    """The time of a step that computes for so long: what the exchanges exceed it by is exposed.

    The optimizer, which waits for the last exchange, is a part of the computation that is not known by itself; it is taken for short.
    """
    end = 0.0
    for exchange, seconds in zip(exchanges, exchange_seconds, strict=True):
        end = max(exchange.ready_share * compute_seconds, end) + seconds
    return max(compute_seconds, end)


def evenly(sizes_bytes, collective):
    """The Exchanges of gradients that become ready at equal distances over the backward pass, the last one at its end."""
    num = len(sizes_bytes)
    return [Exchange(FORWARD_SHARE + (1 - FORWARD_SHARE) * (place + 1) / num, size, collective) for place, size in enumerate(sizes_bytes)]

"""What theory expects of each way of sharing a training: the bytes of state that a rank holds, and those that it sends in a step. Pure.

A backend's declaration names its way (`sharing` in common/backends.py). The formulas, for n ranks and P bytes of parameters, are those of
Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054, sections 5 and 7); that of the ring all-reduce is from Patarasuk and Yuan 2009.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from common import backends, weights
from common.backends import declared, file_of
from common.step_breakdown import gradient_bytes

PARTS = ("parameters", "gradients", "optimizer_state")
# Tensors of the parameters' shapes that an optimizer keeps: SGD with momentum, Adam's two moments.
NUM_STATES = {"sgd": 1, "adam": 2}
TWO_BYTES, FLOAT32_BYTES = 2, 4


class Sharing(NamedTuple):
    """One way of sharing.

    `formula`: the bytes that a rank sends in a step. `sent`: the same in units of P, as a function of n and the settings. `sharded`: the
    PARTS of which a rank holds a shard only. `num_replicas`: the number of models, each in the shards of n / num_replicas ranks.
    """

    formula: str
    sent: Callable
    sharded: tuple[str, ...] = ()
    num_replicas: int = 1


def _all_reduce(n, settings):
    return 2 * (n - 1) / n


def _element_size(settings):
    return np.dtype(weights.DTYPES[settings.precision]).itemsize


WAYS = {
    "replicated": Sharing("2(n-1)/n P", _all_reduce),
    # In float16 or bfloat16.
    "two_bytes": Sharing("4(n-1)/n N", lambda n, settings: _all_reduce(n, settings) * TWO_BYTES / _element_size(settings)),
    # Of stages 1 and 2: the reduce-scatter of the gradients, and the gather of the updated parameters.
    "zero1": Sharing("2(n-1)/n P", _all_reduce, ("optimizer_state",)),
    "zero2": Sharing("2(n-1)/n P", _all_reduce, ("gradients", "optimizer_state")),
    # Parameters are gathered for both passes.
    "zero3": Sharing("3(n-1)/n P", lambda n, settings: 3 * (n - 1) / n, PARTS),
    # As zero3 over half of the ranks; then an all-reduce of the 2P/n bytes of a shard between two ranks.
    "hybrid": Sharing("3(n-2)/n P + 2P/n", lambda n, settings: 3 * (n - 2) / n + 2 / n, PARTS, 2),
    "averaged": Sharing("2(n-1)/(n k) P", lambda n, settings: _all_reduce(n, settings) / settings.averaging_period),
}


def of(name):
    """The Sharing of a backend, or a variant; None where none is declared."""
    by_variant = _by_variant(name)
    return WAYS.get(by_variant.get(name.partition("@")[2], by_variant.get("")))


def ways_of(backend):
    """The backend's name, and those of its variants that share in another way."""
    return [backend, *(f"{backend}@{variant}" for variant in _by_variant(backend) if variant)]


def _by_variant(name):
    """{variant: name of its way}; the way of all other variants is that of the empty name."""
    ways = declared()[file_of(name)].sharing if file_of(name) in declared() else None
    return {"": ways} if isinstance(ways, str | None) else ways


def sent_bytes(name, num_ranks, settings):
    """Bytes that each rank sends in a step by the formula; None without one."""
    sharing = of(name)
    return sharing and sharing.sent(num_ranks, backends.settings_of(name, settings)) * gradient_bytes(settings)


def state_bytes(name, num_ranks, settings):
    """Bytes of parameters, gradients and optimizer state that each rank holds; None without a declared way."""
    sharing = of(name)
    if sharing is None:
        return None
    parameters = gradient_bytes(settings)
    whole = dict(zip(PARTS, (parameters, parameters, _optimizer_state_bytes(name, sharing, settings)), strict=True))
    num_shards = num_ranks // sharing.num_replicas
    return sum(num_bytes / (num_shards if part in sharing.sharded else 1) for part, num_bytes in whole.items())


def _optimizer_state_bytes(name, sharing, settings):
    """Bytes of the optimizer state of a whole model, with float32 master parameters where a backend shards them."""
    parameters = gradient_bytes(settings)
    num_states = 0 if settings.optimizer == "sgd" and not settings.momentum else NUM_STATES[settings.optimizer]
    if declared()[file_of(name)].float32_masters and sharing.sharded:
        return (num_states + 1) * parameters // _element_size(settings) * FLOAT32_BYTES
    return num_states * parameters


def group_size(name, collective, num_ranks):
    """The number of ranks in a collective: with replicas those of one replica, and for an all-reduce one of each replica."""
    sharing = of(name)
    if sharing is None or sharing.num_replicas == 1:
        return num_ranks
    return sharing.num_replicas if collective == "all_reduce" else num_ranks // sharing.num_replicas

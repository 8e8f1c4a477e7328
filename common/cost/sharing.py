"""Each strategy of sharing a training, in theory: the bytes of state that a rank holds, and those that it sends in a step.

A backend's declaration names its strategy (`sharing` in common/backends.py). The formulas, for n ranks and P bytes of parameters, are
those of Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054, sections 5 and 7); that of the ring all-reduce is from Patarasuk and Yuan 2009.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from common import backends
from common.backends import declaration_of
from common.config import Settings
from common.model.weights import DTYPES
from common.trainer import TensorBytes
from common.workloads import gradient_bytes, num_optimizer_states, workload_of

# The parts of the state of a training.
PARTS = TensorBytes._fields
# The bytes of each of the PARTS.
StateBytes = dict[str, float]
TWO_BYTES, FLOAT32_BYTES = 2, 4
# The share of its size that a rank sends in a collective at n ranks, as nccl-tests count it (doc/PERFORMANCE.md derives these bus factors).
# A send and a receive have their whole size on the bus.
BUS_FACTORS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "barrier": lambda n: 0,
}


class Sharing(NamedTuple):
    """One strategy of sharing.

    `sent` gives the bytes that a rank sends in a step, in units of P, from the number of ranks and the settings. A rank holds only a shard
    of the PARTS in `sharded`.
    """

    sent: Callable[[int, Settings], float]
    sharded: tuple[str, ...] = ()


def _all_reduce(n: int, _: Settings) -> float:
    return BUS_FACTORS["all_reduce"](n)


def element_bytes(settings: Settings) -> int:
    """Returns the bytes of a parameter."""
    return np.dtype(DTYPES[settings.precision]).itemsize


STRATEGIES = {
    "replicated": Sharing(_all_reduce),
    # In float16 or bfloat16.
    "two_bytes": Sharing(lambda n, settings: _all_reduce(n, settings) * TWO_BYTES / element_bytes(settings)),
    # Of stages 1 and 2: the reduce-scatter of the gradients, and the gather of the updated parameters.
    "zero1": Sharing(_all_reduce, ("optimizer_state",)),
    "zero2": Sharing(_all_reduce, ("gradients", "optimizer_state")),
    # Parameters are gathered for both passes.
    "zero3": Sharing(lambda n, _: 3 * (n - 1) / n, PARTS),
    # The same, with gradients in bfloat16.
    "zero3_two_bytes": Sharing(lambda n, settings: (n - 1) / n * (2 + TWO_BYTES / element_bytes(settings)), PARTS),
    "averaged": Sharing(lambda n, settings: _all_reduce(n, settings) / settings.averaging_period),
}


def of(name: str) -> Sharing | None:
    """Returns the strategy of a backend, or a variant; None where none is declared."""
    strategies = _by_variant(name)
    strategy = strategies.get(name.partition("@")[2]) or strategies.get("")
    return STRATEGIES[strategy] if strategy else None


def _by_variant(name: str) -> Mapping[str, str]:
    """Returns the name of each variant's strategy. That of all other variants is that of the empty name."""
    strategies = declaration_of(name).sharing or {}
    return {"": strategies} if isinstance(strategies, str) else strategies


def sent_bytes(name: str, num_ranks: int, settings: Settings) -> float | None:
    """Returns the bytes that each rank sends in a step by the formula; None without one."""
    sharing = of(name)
    return sharing and sharing.sent(num_ranks, backends.settings_of(name, settings)) * gradient_bytes(settings)


def state_bytes(name: str, num_ranks: int, settings: Settings) -> float | None:
    """Returns the bytes of parameters, gradients and optimizer state that each rank holds; None without a declared strategy."""
    whole = whole_bytes(name, workload_of(settings).num_parameters, settings)
    return (sharing := of(name)) and sum(held_bytes(sharing, num_ranks, whole).values())


def held_bytes(sharing: Sharing, num_ranks: int, whole: StateBytes) -> StateBytes:
    """Returns the bytes that each rank holds of a model that has `whole` in all."""
    return {kind: num_bytes / (num_ranks if kind in sharing.sharded else 1) for kind, num_bytes in whole.items()}


def whole_bytes(name: str, num_parameters: float, settings: Settings) -> StateBytes:
    """Returns the bytes of a whole model under a backend, or a variant.

    The optimizer state is float32, with master parameters, where the backend has these and shards them.
    """
    sharing, element = of(name), element_bytes(settings)
    has_masters = bool(sharing and sharing.sharded and declaration_of(name).float32_masters)
    of_state = (num_optimizer_states(settings) + 1) * FLOAT32_BYTES if has_masters else num_optimizer_states(settings) * element
    return dict(zip(PARTS, (num_parameters * element, num_parameters * element, num_parameters * of_state), strict=True))


def bus_bytes(name: str, num_bytes: float, num_ranks: int) -> float:
    """Returns the bytes that a rank sends in a collective to which it contributes `num_bytes`: all of them where it has no bus factor.

    The size of a collective is the larger of the bytes that a rank sends and those that it receives.
    """
    size = num_bytes * num_ranks if name == "all_gather" else num_bytes
    return BUS_FACTORS[name](num_ranks) * size if name in BUS_FACTORS else size

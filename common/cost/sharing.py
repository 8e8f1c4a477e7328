"""Each strategy of sharing a training, in theory: the bytes of state that a rank holds, and those that it sends in a step.

A backend's declaration names its strategy (`sharing` in common/backends.py). The formulas, for n ranks and P bytes of parameters, are
those of Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054, sections 5 and 7); that of the ring all-reduce is from Patarasuk and Yuan 2009.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from common import backends
from common.backends import declaration_of
from common.config import Settings
from common.declarations import declared
from common.trainer import TensorBytes
from common.workloads import gradient_bytes, num_optimizer_states

# The parts of the state of a training.
PARTS = TensorBytes._fields
# The bytes of each of the PARTS.
StateBytes = dict[str, float]


class Precision(NamedTuple):
    """Bytes of a number: of the `parameters` and their gradients, of the tensors that an optimizer keeps from step to step (`states`), of
    its own copy of the parameters (`masters`; 0: it has none)."""

    parameters: int
    states: int
    masters: int


# In bf16_masters parameters and gradients have 16 bits and the optimizer has a float32 copy: Micikevicius et al. 2018, arXiv:1710.03740,
# section 3.1; with Adam the 16 bytes per parameter of ZeRO, section 3.1.
PRECISIONS = {
    "fp32": Precision(4, 4, 0),
    "tf32": Precision(4, 4, 0),
    "fp64": Precision(8, 8, 0),
    "bf16": Precision(4, 4, 0),
    "bf16_masters": Precision(2, 4, 4),
}
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

    `formula` gives the bytes that a rank sends in a step. `sent` gives those among the ranks of a replica, in units of P, from their
    number and the settings. A rank holds only a shard of the PARTS in `sharded`. Where `by_node`, each node has a replica.
    """

    formula: str
    sent: Callable[[int, Settings], float]
    sharded: tuple[str, ...] = ()
    by_node: bool = False


def _all_reduce(n: int, _: Settings) -> float:
    return BUS_FACTORS["all_reduce"](n)


def _gathered_twice(n: int, _: Settings) -> float:
    return 3 * (n - 1) / n


def _element_bytes(settings: Settings) -> int:
    return PRECISIONS[settings.precision].parameters


STRATEGIES = {
    "replicated": Sharing("2(n-1)/n P", _all_reduce),
    # In float16 or bfloat16.
    "two_bytes": Sharing("4(n-1)/n N", lambda n, settings: _all_reduce(n, settings) * TWO_BYTES / _element_bytes(settings)),
    # Of stages 1 and 2: the reduce-scatter of the gradients, and the gather of the updated parameters.
    "zero1": Sharing("2(n-1)/n P", _all_reduce, ("optimizer_state",)),
    "zero2": Sharing("2(n-1)/n P", _all_reduce, ("gradients", "optimizer_state")),
    # Parameters are gathered for both passes.
    "zero3": Sharing("3(n-1)/n P", _gathered_twice, PARTS),
    # The same, with gradients in bfloat16.
    "zero3_two_bytes": Sharing(
        "2(n-1)/n P + 2(n-1)/n N", lambda n, settings: (n - 1) / n * (2 + TWO_BYTES / _element_bytes(settings)), PARTS
    ),
    # The same, with parameters gathered in bfloat16.
    "zero3_gathered_in_two_bytes": Sharing(
        "(n-1)/n P + 4(n-1)/n N", lambda n, settings: (n - 1) / n * (1 + 2 * TWO_BYTES / _element_bytes(settings)), PARTS
    ),
    # As zero3 over the n/r ranks of each of r replicas; then an all-reduce of the rP/n bytes of a shard between r ranks.
    "hybrid": Sharing("3(n-r)/n P + 2(r-1)/n P", _gathered_twice, PARTS, by_node=True),
    "averaged": Sharing("2(n-1)/(n k) P", lambda n, settings: _all_reduce(n, settings) / settings.averaging_period),
}


def of(name: str) -> Sharing | None:
    """Returns the strategy of a backend, or a variant; None where none is declared."""
    strategy = backends.by_variant(_by_variant(name), name)
    return STRATEGIES[strategy] if strategy else None


def backends_and_variants() -> list[str]:
    """Returns the names of all backends, and of their variants with another strategy."""
    names = []
    for backend in declared():
        names += [backend, *(f"{backend}@{variant}" for variant in _by_variant(backend) if variant)]
    return names


def _by_variant(name: str) -> Mapping[str, str | None]:
    """Returns the name of each variant's strategy. That of all other variants is that of the empty name."""
    strategies = declaration_of(name).sharing
    return {"": strategies} if isinstance(strategies, str | None) else strategies


def sent_bytes(name: str, num_ranks: int, settings: Settings, num_nodes: int = 1) -> float | None:
    """Returns the bytes that each rank sends in a step by the formula; None without one."""
    sharing = of(name)
    if sharing is None:
        return None
    settings, replicas = backends.settings_of(name, settings), num_replicas(sharing, num_nodes)
    num_shards = num_ranks // replicas
    sent = sharing.sent(num_shards, settings) + _all_reduce(replicas, settings) / num_shards
    size = element_bytes(name, settings) / _element_bytes(settings)
    return sent * gradient_bytes(settings) * size


def state_bytes(name: str, num_ranks: int, settings: Settings, num_nodes: int = 1) -> float | None:
    """Returns the bytes of parameters, gradients and optimizer state that each rank holds; None without a declared strategy."""
    sharing = of(name)
    if sharing is None:
        return None
    num_parameters = gradient_bytes(settings) // _element_bytes(settings)
    return sum(held_bytes(sharing, num_ranks, whole_bytes(name, num_parameters, settings), num_nodes).values())


def held_bytes(sharing: Sharing, num_ranks: int, whole: StateBytes, num_nodes: int = 1) -> StateBytes:
    """Returns the bytes that each rank holds of a model that has `whole` in all."""
    num_shards = num_ranks // num_replicas(sharing, num_nodes)
    return {kind: num_bytes / (num_shards if kind in sharing.sharded else 1) for kind, num_bytes in whole.items()}


def whole_bytes(name: str, num_parameters: float, settings: Settings) -> StateBytes:
    """Returns the bytes of a whole model under a backend, or a variant.

    The optimizer state has float32 master parameters where the precision has them, or the backend does and shards them.
    """
    precision, sharing = PRECISIONS[precision_of(name, settings.precision)], of(name)
    if sharing and sharing.sharded and declaration_of(name).float32_masters:
        precision = precision._replace(states=FLOAT32_BYTES, masters=FLOAT32_BYTES)
    parameters = num_parameters * precision.parameters
    optimizer_state = num_parameters * (num_optimizer_states(settings) * precision.states + precision.masters)
    return dict(zip(PARTS, (parameters, parameters, optimizer_state), strict=True))


def precision_of(name: str, precision: str) -> str:
    """Returns the name in PRECISIONS of the numbers that a backend, or a variant, holds under --precision."""
    return backends.by_variant(declaration_of(name).precisions, name) or precision


def element_bytes(name: str, settings: Settings) -> int:
    """Returns the bytes of a parameter that a backend, or a variant, holds."""
    return PRECISIONS[precision_of(name, settings.precision)].parameters


def group_size(name: str, collective: str, num_ranks: int, num_nodes: int = 1) -> int:
    """Returns the number of ranks in a collective: those that share a replica, or for an all-reduce one of each replica."""
    sharing = of(name)
    if sharing is None or not sharing.by_node:
        return num_ranks
    replicas = num_replicas(sharing, num_nodes)
    return replicas if collective == "all_reduce" else num_ranks // replicas


def num_replicas(sharing: Sharing, num_nodes: int) -> int:
    """Returns the number of models that ranks hold in shards."""
    return replicas_on(num_nodes) if sharing.by_node else 1


def replicas_on(num_nodes: int) -> int:
    """Returns the number of replicas where each node has one. On a single node each half of the ranks has one."""
    return max(2, num_nodes)


def bus_bytes(name: str, num_bytes: float, num_ranks: int) -> float:
    """Returns the bytes that a rank sends in a collective to which it contributes `num_bytes`: all of them where it has no bus factor.

    The size of a collective is the larger of the bytes that a rank sends and those that it receives.
    """
    size = num_bytes * num_ranks if name == "all_gather" else num_bytes
    return BUS_FACTORS[name](num_ranks) * size if name in BUS_FACTORS else size

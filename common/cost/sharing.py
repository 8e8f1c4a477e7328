"""What theory expects of each way of sharing a training: the bytes of state that a rank holds, and those that it sends in a step. Pure.

A backend's declaration names its way (`sharing` in common/backends.py). The formulas, for n ranks and P bytes of parameters, are those of
Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054, sections 5 and 7); that of the ring all-reduce is from Patarasuk and Yuan 2009.
"""

from collections.abc import Callable
from typing import NamedTuple

from common import backends
from common.backends import declaration_of, declared
from common.trainer import Held
from common.workloads import gradient_bytes

# Of the state of a training.
PARTS = Held._fields


class Precision(NamedTuple):
    """Bytes of a number: of the `parameters` and their gradients, of what an optimizer keeps of a training (`states`), of its own copy of
    the parameters (`masters`; 0: it has none), and of the factors of matrix products."""

    parameters: int
    states: int
    masters: int
    products: int


# The last two are of no run here. In bf16_masters parameters and gradients have 16 bits and the optimizer has a float32 copy: Micikevicius
# et al. 2018, arXiv:1710.03740, section 3.1; with Adam the 16 bytes per parameter of ZeRO, section 3.1. In bf16_pure nothing has more.
PRECISIONS = {
    "fp32": Precision(4, 4, 0, 4),
    "tf32": Precision(4, 4, 0, 4),
    "fp64": Precision(8, 8, 0, 8),
    "bf16": Precision(4, 4, 0, 2),
    "bf16_masters": Precision(2, 4, 4, 2),
    "bf16_pure": Precision(2, 2, 0, 2),
}
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
    return PRECISIONS[settings.precision].parameters


WAYS = {
    "replicated": Sharing("2(n-1)/n P", _all_reduce),
    # In float16 or bfloat16.
    "two_bytes": Sharing("4(n-1)/n N", lambda n, settings: _all_reduce(n, settings) * TWO_BYTES / _element_size(settings)),
    # Of stages 1 and 2: the reduce-scatter of the gradients, and the gather of the updated parameters.
    "zero1": Sharing("2(n-1)/n P", _all_reduce, ("optimizer_state",)),
    "zero2": Sharing("2(n-1)/n P", _all_reduce, ("gradients", "optimizer_state")),
    # Parameters are gathered for both passes.
    "zero3": Sharing("3(n-1)/n P", lambda n, settings: 3 * (n - 1) / n, PARTS),
    # The same, with gradients in bfloat16.
    "zero3_two_bytes": Sharing(
        "2(n-1)/n P + 2(n-1)/n N", lambda n, settings: (n - 1) / n * (2 + TWO_BYTES / _element_size(settings)), PARTS
    ),
    # As zero3 over half of the ranks; then an all-reduce of the 2P/n bytes of a shard between two ranks.
    "hybrid": Sharing("3(n-2)/n P + 2P/n", lambda n, settings: 3 * (n - 2) / n + 2 / n, PARTS, 2),
    "averaged": Sharing("2(n-1)/(n k) P", lambda n, settings: _all_reduce(n, settings) / settings.averaging_period),
}


def of(name):
    """The Sharing of a backend, or a variant; None where none is declared."""
    by_variant = _by_variant(name)
    return WAYS.get(by_variant.get(name.partition("@")[2], by_variant.get("")))


def every_way():
    """Every backend, and the variants that share in another way than it."""
    ways = []
    for backend in declared():
        ways += [backend, *(f"{backend}@{variant}" for variant in _by_variant(backend) if variant)]
    return ways


def _by_variant(name):
    """{variant: name of its way}; the way of all other variants is that of the empty name."""
    ways = declaration_of(name).sharing
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
    num_parameters = gradient_bytes(settings) // _element_size(settings)
    return sum(held_bytes(sharing, num_ranks, whole_bytes(name, num_parameters, settings)).values())


def held_bytes(sharing, num_ranks, whole):
    """{part: bytes} that each rank holds of {part: bytes of a whole model}."""
    num_shards = num_ranks // sharing.num_replicas
    return {part: num_bytes / (num_shards if part in sharing.sharded else 1) for part, num_bytes in whole.items()}


def whole_bytes(name, num_parameters, settings):
    """{part: bytes} of a whole model under a backend, or a variant. `settings`: anything with precision, optimizer and momentum.

    The optimizer state has float32 master parameters where the precision has them, or the backend does and shards them.
    """
    precision, sharing = PRECISIONS[settings.precision], of(name)
    if sharing and sharing.sharded and declaration_of(name).float32_masters:
        precision = precision._replace(states=FLOAT32_BYTES, masters=FLOAT32_BYTES)
    num_states = 0 if settings.optimizer == "sgd" and not settings.momentum else NUM_STATES[settings.optimizer]
    parameters = num_parameters * precision.parameters
    return dict(zip(PARTS, (parameters, parameters, num_parameters * (num_states * precision.states + precision.masters)), strict=True))


def group_size(name, collective, num_ranks):
    """The number of ranks in a collective: with replicas those of one replica, and for an all-reduce one of each replica."""
    sharing = of(name)
    if sharing is None or sharing.num_replicas == 1:
        return num_ranks
    return sharing.num_replicas if collective == "all_reduce" else num_ranks // sharing.num_replicas

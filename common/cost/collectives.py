"""The bytes that collectives send, as nccl-tests count them: doc/PERFORMANCE.md derives the bus factors.

The size of a collective is the larger of the bytes that a rank sends and those that it receives.
"""

# The share of its size that a rank sends at n ranks; a send and a receive have their whole size on the bus.
BUS_FACTORS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "barrier": lambda n: 0,
}


def bus_bytes(name: str, num_bytes: float, num_ranks: int) -> float:
    """Returns the bytes that a rank sends in a collective to which it contributes `num_bytes`: all of them where it has no bus factor."""
    size = num_bytes * num_ranks if name == "all_gather" else num_bytes
    return BUS_FACTORS[name](num_ranks) * size if name in BUS_FACTORS else size

"""What fits into the memory of a rank: which backends, how large a model, and from how many ranks on."""

import bisect
from typing import NamedTuple

from common import units
from common.backends import declaration_of, has_one_rank
from common.cost import memory_forecast
from common.cost.memory_forecast import Training
from common.errors import UserError
from common.model.families import Decoder, EncoderDecoder

MOST_RANKS = 2**17
# Models with fewer heads than this are tried.
MOST_HEADS = 2**15


class Fit(NamedTuple):
    """Whether a training fits under a backend; the widest model of its depth that does, and its parameters; the fewest ranks, a power of 2.

    None stands for no such model or number of ranks, also where the model has no width to change.
    """

    name: str
    fits: bool
    peak: float
    width: int | None
    num_parameters: float | None
    fewest_ranks: int | None


def size_of(text: str, option: str = "--fits") -> float:
    """Returns the bytes in a text such as 80GB. Raises UserError for any other text."""
    size_bytes = units.size_bytes(text) if text.endswith("B") else None
    if not size_bytes:
        raise UserError(f"{option} is {text!r}; give the memory of a rank, such as 80GB or 64GiB")
    return size_bytes


def fit(name: str, training: Training, num_ranks: int, limit: float) -> Fit:
    """Determines what of a training fits under a backend into `limit` bytes."""
    peak = memory_forecast.of(name, training, num_ranks).peak
    largest = widest(name, training, num_ranks, limit)
    width, num_parameters = None, None
    if largest:
        num_parameters = memory_forecast.num_parameters(largest)
        width = largest.model.width if isinstance(largest.model, Decoder | EncoderDecoder) else None
    return Fit(name, peak <= limit, peak, width, num_parameters, fewest_ranks(name, training, limit))


def fewest_ranks(name: str, training: Training, limit: float) -> int | None:
    """Returns the smallest power of 2 as the number of ranks with which a training fits; None if none does."""
    most = 1 if has_one_rank(name.partition("+")[0]) else MOST_RANKS
    for num_ranks in (2**power for power in range(most.bit_length())):
        # A pipeline of that many ranks needs as many micro-batches.
        pipelined = training._replace(microbatches=max(training.microbatches, num_ranks))
        if _fits(name, pipelined, num_ranks, limit):
            return num_ranks
    return None


def widest(name: str, training: Training, num_ranks: int, limit: float) -> Training | None:
    """Returns the widest model that fits, of the same depth and with more heads of the same width; None if none does."""
    if not isinstance(training.model, Decoder | EncoderDecoder):
        return None
    # Each rank of a backend that divides heads has as many of them.
    step = num_ranks if declaration_of(name.partition("+")[0]).divides else 1
    numbers_of_heads = range(step, MOST_HEADS, step)
    num_fitting = bisect.bisect(numbers_of_heads, False, key=lambda heads: not _fits(name, widened(training, heads), num_ranks, limit))
    return widened(training, numbers_of_heads[num_fitting - 1]) if num_fitting else None


def widened(training: Training, num_heads: int) -> Training:
    """Returns the training of a model with that many heads of the same width; --params grows in proportion to the sizes."""
    model = training.model
    assert isinstance(model, Decoder | EncoderDecoder), "other models have no heads"
    width = model.width // model.num_heads * num_heads
    wider = model._replace(num_heads=num_heads, width=width)
    if isinstance(model, EncoderDecoder):
        wider = wider._replace(hidden=model.hidden * width // model.width)
    changed = training._replace(model=wider, num_parameters=None)
    if training.num_parameters is None:
        return changed
    by_sizes = memory_forecast.num_parameters(training._replace(num_parameters=None))
    return changed._replace(num_parameters=training.num_parameters * memory_forecast.num_parameters(changed) / by_sizes)


def _fits(name: str, training: Training, num_ranks: int, limit: float) -> bool:
    return not memory_forecast.problem(name, training, num_ranks) and memory_forecast.of(name, training, num_ranks).peak <= limit

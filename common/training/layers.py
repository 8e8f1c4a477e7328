"""Seconds of a step by kind of layer: every operation of the model alone, forward and backward, at the shapes of the step.

What remains of the compute of a step is its runtime (Python, dispatch and graph), and what operations gain or lose beside each other.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from common import workloads
from common.config import Settings
from common.model.families import operations_of
from common.model.operations import OPTIMIZER, Operation
from common.model.own_model import OwnModel
from common.model.weights import DTYPES
from common.record.parts import LayerSeconds
from common.trainer import Trainer

# An operation is computed on several copies of its operands, one after the other, if they are small: its call takes long beside it.
MAX_COPIES, COPIES_BYTES = 8, 2**22
NUM_WARMUPS, NUM_TURNS, TURN_SECONDS, MIN_ROUNDS = 3, 6, 0.3, 2

Function = Callable[[], object]
SecondsOf = Callable[[Sequence[Function]], list[float]]


def measure(trainer: Trainer, settings: Settings, end_turn: Function) -> dict[str, LayerSeconds]:
    """Measures each kind of operation of the model, and the optimizer. The optimizer state must not be used afterwards.

    A round computes all operations forward, then all backward, then the optimizer, as a step does: operations alone would find their
    operands in a nearer cache.
    """
    micro_batch = workloads.batch_plan(settings, 1).micro_batch
    model = workloads.workload_of(settings).model
    assert not isinstance(model, OwnModel), "--layer-times is refused with --model"
    num_by_operation = Counter(operations_of(model))
    copies = [drawn_copies(operation, micro_batch, settings) for operation in num_by_operation]
    passes = [trainer.passes(*of_operation, settings.precision) for of_operation in zip(num_by_operation, copies, strict=True)]
    calls = trainer.passes(next(iter(num_by_operation)), [], settings.precision)
    forward = [(of_operation.forward, calls.forward) for of_operation in passes]
    both = [(of_operation.forward_and_backward, calls.forward_and_backward) for of_operation in reversed(passes)]
    seconds_of = trainer.describe_device().kernel_seconds or wall_seconds
    *seconds, update_seconds = net_seconds([*forward, *both, (trainer.update(), calls.forward)], end_turn, seconds_of)
    forward_seconds, both_seconds = seconds[: len(passes)], seconds[: len(passes) - 1 : -1]
    by_kind: dict[str, LayerSeconds] = {}
    for number, (operation, num_in_model) in enumerate(num_by_operation.items()):
        num_in_step = settings.accumulate * num_in_model / len(copies[number])
        total = by_kind.setdefault(operation.kind, LayerSeconds(0.0, 0.0))
        total.forward_seconds += num_in_step * forward_seconds[number]
        total.backward_seconds += num_in_step * max(0.0, both_seconds[number] - forward_seconds[number])
    return by_kind | {OPTIMIZER: LayerSeconds(update_seconds, 0.0)}


def drawn_copies(operation: Operation, num_samples: int, settings: Settings) -> list[list[np.ndarray]]:
    """Draws copies of the operands of an operation for a batch, in the layouts of weights.py."""
    stream = np.random.default_rng(settings.seed)
    first = _drawn(operation, num_samples, settings.precision, stream)
    num_copies = min(MAX_COPIES, COPIES_BYTES // sum(array.nbytes for array in first))
    return [first, *(_drawn(operation, num_samples, settings.precision, stream) for _ in range(num_copies - 1))]


def _drawn(operation: Operation, num_samples: int, precision: str, stream: np.random.Generator) -> list[np.ndarray]:
    arrays = []
    for operand in operation.operands:
        shape = operand.shape if operand.parameter else (num_samples, *operand.shape)
        numbers = stream.random(shape, DTYPES[precision]) - 0.5 if operand.end is None else stream.integers(0, operand.end, shape)
        arrays.append(np.asarray(numbers))
    return arrays


def net_seconds(functions: Sequence[tuple[Function, Function]], end_turn: Function, seconds_of: SecondsOf) -> list[float]:
    """Returns the median seconds of each function, warm, over rounds that call all of them, less that of the empty call beside it.

    A step has one such call. `end_turn()` lets the other runs of the group measure some rounds before this one measures the next, so that
    all meet the same machine.
    """
    for pair in functions:
        for function in pair * NUM_WARMUPS:
            function()
    rounds: list[list[float]] = []
    for _ in range(NUM_TURNS):
        end_turn()
        begun, num_rounds = time.perf_counter(), 0
        while num_rounds < MIN_ROUNDS or time.perf_counter() - begun < TURN_SECONDS:
            rounds.append(seconds_of([function for pair in functions for function in pair]))
            num_rounds += 1
    return [max(0.0, seconds - call) for seconds, call in np.median(rounds, axis=0).reshape(-1, 2).tolist()]


def wall_seconds(functions: Sequence[Function]) -> list[float]:
    """Calls functions one after the other and returns the seconds that each takes."""
    times = [time.perf_counter()]
    for function in functions:
        function()
        times.append(time.perf_counter())
    return [end - begin for begin, end in pairwise(times)]

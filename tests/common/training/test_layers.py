"""The seconds of layers: those of all operations of a step, each without its call."""

import pytest

from common.config import Settings
from common.model import families
from common.trainer import Device, Passes
from common.training import layers
from common.workloads import WORKLOADS

CALL_SECONDS, FORWARD_SECONDS, BACKWARD_SECONDS, UPDATE_SECONDS = 0.5, 1.0, 3.0, 7.0


class Clock:
    """A clock that only the functions of a trainer move on."""

    def __init__(self):
        self.seconds, self.called = 0.0, []

    def perf_counter(self):
        return self.seconds

    def taking(self, name, seconds):
        def function():
            self.called.append(name)
            self.seconds += seconds

        return function


class MadeTrainer:
    """A trainer whose operations take 1 s forward and 3 s backward for each copy, and 0.5 s for each call."""

    def __init__(self, clock, kernel_seconds=None):
        self.clock, self.kernel_seconds, self.shapes = clock, kernel_seconds, []

    def passes(self, operation, copies, precision):
        self.shapes += [(operation, [array.shape for array in arrays]) for arrays in copies]
        forward = CALL_SECONDS + len(copies) * FORWARD_SECONDS
        both = forward + len(copies) * BACKWARD_SECONDS
        name = operation.kind if copies else "call"
        return Passes(self.clock.taking(name, forward), self.clock.taking(f"{name} backward", both))

    def describe_device(self):
        return Device("cpu", None, False, None, None, None, kernel_seconds=self.kernel_seconds)

    def update(self):
        return self.clock.taking("update", CALL_SECONDS + UPDATE_SECONDS)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(layers, "time", clock)
    return clock


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("workload", ["cnn", "transformer"])
def test_the_layers_of_a_step_are_all_of_its_operations_in_each_micro_batch(workload, accumulate, clock):
    trainer = MadeTrainer(clock)
    seconds = layers.measure(trainer, Settings(workload=workload, accumulate=accumulate, batch_size=2), lambda: None)
    kinds = [operation.kind for operation in families.operations_of(WORKLOADS[workload].model)]
    assert {kind: of_kind.forward_seconds for kind, of_kind in seconds.items() if kind != "optimizer"} == pytest.approx(
        {kind: accumulate * kinds.count(kind) * FORWARD_SECONDS for kind in kinds}
    )
    assert {kind: of_kind.backward_seconds for kind, of_kind in seconds.items() if kind != "optimizer"} == pytest.approx(
        {kind: accumulate * kinds.count(kind) * BACKWARD_SECONDS for kind in kinds}
    )
    assert vars(seconds["optimizer"]) == {"forward_seconds": pytest.approx(UPDATE_SECONDS), "backward_seconds": 0}
    # The shapes are those of a micro-batch.
    for operation, shapes in trainer.shapes:
        for operand, shape in zip(operation.operands, shapes, strict=True):
            assert shape == (operand.shape if operand.parameter else (2, *operand.shape))


def test_a_round_computes_all_operations_forward_then_backward_as_a_step_does_and_the_other_runs_have_turns(clock):
    ends = []
    layers.measure(MadeTrainer(clock), Settings(batch_size=2), lambda: ends.append(len(clock.called)))
    assert len(ends) == layers.NUM_TURNS
    round_of_turn = [name for name in clock.called[ends[0] :] if not name.startswith("call")]
    kinds = list(dict.fromkeys(families.operations_of(WORKLOADS["cnn"].model)))
    forward = [operation.kind for operation in kinds]
    assert round_of_turn[: 2 * len(kinds) + 1] == [*forward, *(f"{kind} backward" for kind in reversed(forward)), "update"]


def test_the_seconds_of_layers_on_a_gpu_are_those_of_their_kernels(clock):
    def kernel_seconds(functions):
        # Launches take a tenth of the time.
        return [10 * seconds for seconds in layers.wall_seconds(functions)]

    trainers = [MadeTrainer(clock), MadeTrainer(clock, kernel_seconds)]
    on_cpu, on_gpu = (layers.measure(trainer, Settings(batch_size=2), lambda: None) for trainer in trainers)
    for kind, of_kind in on_gpu.items():
        assert vars(of_kind) == {name: pytest.approx(10 * seconds) for name, seconds in vars(on_cpu[kind]).items()}


def test_only_operands_that_are_small_have_copies():
    convolution, *_, loss = families.operations_of(WORKLOADS["cnn"].model)
    assert len(layers.drawn_copies(loss, 16, Settings())) == layers.MAX_COPIES
    assert len(layers.drawn_copies(convolution, 10_000, Settings())) == 1

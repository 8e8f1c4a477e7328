"""The training loop and its clock, driven by a trainer that computes nothing and takes a known time."""

import contextlib
import dataclasses
import itertools
import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from common import workloads
from common.config import Settings
from common.data import sharding
from common.data.samples import Arrays, Dataset
from common.errors import Diverged, UserError
from common.model import weights
from common.ranks.gpus import Device
from common.ranks.launcher_variables import Ranks
from common.ranks.watchdog import Watchdog
from common.record import definition
from common.trainer import NO_LOSS, POINTS, TensorBytes, Totals
from common.training import checkpoints, clock, loop
from common.training.clock import Turns
from launch.report import table
from launch.run.session import outcome
from tests.support.mistakes import refused
from tests.support.small_models import RESNET

LOAD_SECONDS, STEP_SECONDS, EVALUATION_SECONDS, STOPPED_SECONDS = 10.0, 1.0, 2.0, 100.0
NUM_TRAIN, NUM_TEST = 10, 7
# Three steps an epoch, and two evaluation batches, the last one padded.
SETTINGS = workloads.resolve(Settings(batch_size=3, epochs=3, target=0.5), 1)
PARAMETERS = weights.draw(workloads.workload_of(SETTINGS).parameters, SETTINGS.seed, SETTINGS.precision)


class Timed:
    """A trainer whose steps and evaluations move `now` on; its evaluations have the accuracies, one after the other.

    `attributes`: its losses, one after the other; that of its evaluations; the step from which on its library skips steps without a word;
    what giving its parameters and measuring a step's memory take.
    """

    staleness = None
    loss_of_evaluation, skipped_step = 0.0, math.inf
    state_seconds = memory_seconds = 0.0

    def __init__(self, accuracies=(), losses=None, parameters=PARAMETERS, **attributes):
        self.ranks, self.now, self.num_steps, self.accuracies = Ranks(), 0.0, 0, iter(accuracies)
        self.losses, self.parameters = losses or itertools.repeat(1.0), parameters
        vars(self).update(attributes)

    def num_skipped_steps(self):
        return int(self.num_steps >= self.skipped_step)

    def load(self):
        self.now += LOAD_SECONDS
        images, labels = (np.zeros((NUM_TRAIN + NUM_TEST, *shape), kind) for shape, kind in (((28, 28), np.float32), ((), np.uint8)))
        train, test = (Arrays(images[part], labels[part]) for part in (slice(NUM_TRAIN), slice(NUM_TRAIN, None)))
        return Dataset(train, test, "digest")

    def train_epoch(self, batches, observe):
        self.parameters = {name: values + 1 for name, values in self.parameters.items()}
        for _ in batches:
            self.now += STEP_SECONDS
            self.num_steps += 1
            observe(next(self.losses))

    def evaluate(self, batches):
        self.now += EVALUATION_SECONDS
        count = sum(batch.weights.sum() for batch in batches)
        return Totals(self.loss_of_evaluation, next(self.accuracies, 0.0) * count, count)

    @contextlib.contextmanager
    def memory(self):
        self.now += self.memory_seconds
        yield dict.fromkeys(POINTS, TensorBytes(8, 4, 2))

    def sum(self, values):
        return values

    def describe_device(self):
        return Device("cpu", None, None, None, None)

    def state(self, with_optimizer_state=True):
        self.now += self.state_seconds
        return self.parameters

    def restore(self, state):
        self.parameters = state

    def stop(self):
        """Other runs have their turns."""
        self.now += STOPPED_SECONDS


def new_record():
    launch = {"launcher": "alone", "command": "python", "launched_at": None}
    record = definition.new("single", SETTINGS, Ranks(), workloads.batch_plan(SETTINGS, 1), launch, {})
    record.pids_by_rank, record.oversubscribed = [], False
    return record


@pytest.fixture
def trained(monkeypatch):
    """A function that gives the record of a run with these accuracies after its epochs."""
    monkeypatch.setitem(workloads.WORKLOADS, "cnn", workloads.WORKLOADS["cnn"]._replace(evaluation_batch_size=4))

    def run(*accuracies, trainer_class=Timed, record=None, **changes):
        trainer, record = trainer_class(accuracies), record or new_record()
        monkeypatch.setattr(loop.time, "perf_counter", lambda: trainer.now)
        monkeypatch.setattr(clock, "stop", trainer.stop)
        settings = SimpleNamespace(**vars(SETTINGS) | changes)
        loop.train(trainer, settings, trainer.load, record, lambda _: "digest", Watchdog(0, None), Turns(trainer, 1.0, []))
        return record

    return run


# Of two epochs.
TIME_TO_SOLUTION = LOAD_SECONDS + 2 * (3 * STEP_SECONDS + EVALUATION_SECONDS)


def test_the_clock_has_loading_and_evaluation_and_stops_where_the_target_is_first_met(trained):
    record = trained(0.2, 0.6, 0.7, stop_at_target=False)
    # Padding counts neither in the accuracy nor in the rate.
    assert record.accuracies == pytest.approx([0.2, 0.6, 0.7])
    assert record.samples_per_second == pytest.approx(9 / (3 * STEP_SECONDS))
    assert record.time_to_solution_seconds == TIME_TO_SOLUTION


def test_a_target_of_which_less_is_better_is_met_from_above(trained, monkeypatch):
    monkeypatch.setitem(workloads.WORKLOADS, "cnn", workloads.WORKLOADS["cnn"]._replace(metric="metric", lower_is_better=True))
    record = trained(0.9, 0.3, 0.4, stop_at_target=False)
    assert record.time_to_solution_seconds == TIME_TO_SOLUTION
    assert table.epochs_to_target(dataclasses.replace(record, status="ok")) == 2
    record.status = "ok"
    assert outcome(record).startswith("reached 0.5 in 20.00 s (metric 0.4000)")


@pytest.mark.parametrize(("limit", "steps"), [("2", 2), ("9", 3), ("", 3)])
def test_an_epoch_has_whole_batches_only_and_no_more_steps_than_asked_for(trained, limit, steps, monkeypatch):
    monkeypatch.setenv(sharding.STEPS_VARIABLE, limit)
    record = trained()
    assert (len(record.losses), len(record.accuracies)) == (3 * steps, 3)
    assert (record.samples_per_epoch, record.samples_dropped_per_epoch) == (3 * steps, NUM_TRAIN - 3 * steps)
    assert record.train_seconds == [steps * STEP_SECONDS] * 3


def test_a_workload_for_throughput_only_is_not_evaluated_and_has_no_time_to_solution(trained):
    record = trained(target=None)
    assert (record.reached, record.time_to_solution_seconds, record.accuracy) == (None,) * 3
    assert record.accuracies == record.eval_losses == record.eval_seconds == []
    record.status, record.target = "ok", None
    assert outcome(record) == "3.0 samples/s"


def test_pixels_are_bytes_up_to_the_trainer_also_while_it_warms_up(trained, monkeypatch):
    types = []

    class Looking(Timed):
        def load(self):
            images, labels = np.zeros((NUM_TRAIN, *RESNET.input_shape), np.uint8), np.zeros(NUM_TRAIN, np.int64)
            return Dataset(Arrays(images, labels), Arrays(images[:0], labels[:0]), "digest")

        def train_epoch(self, batches, observe):
            batches = list(batches)
            types.extend((batch.inputs.dtype, batch.inputs.shape, batch.targets.dtype) for batch in batches)
            super().train_epoch(batches, observe)

    monkeypatch.setitem(workloads.WORKLOADS, "resnet50", workloads.WORKLOADS["resnet50"]._replace(model=RESNET))
    loop.prepare(Looking(), dataclasses.replace(SETTINGS, workload="resnet50"), new_record())
    trained(trainer_class=Looking, workload="resnet50", target=None)
    assert types == [(np.uint8, (3, *RESNET.input_shape), np.int64)] * (loop.NUM_WARMUP_STEPS + 3 * 3)


def test_a_run_that_resumes_goes_on_after_its_checkpoint_if_there_is_one_and_has_no_time_to_solution_then(trained, tmp_path):
    kept = {"resume": True, "checkpoint_dir": tmp_path}
    whole = trained(schedule="cosine", stop_at_target=False)
    begun, resumed = trained(0.6, **kept, schedule="cosine", epochs=3), trained(0.7, **kept, schedule="cosine")
    assert (begun.resumed_after_epochs, resumed.resumed_after_epochs) == (0, 1)
    assert begun.time_to_solution_seconds > 0
    assert (resumed.accuracies, resumed.reached, resumed.time_to_solution_seconds) == ([pytest.approx(0.7)], True, None)
    # Of its second epoch.
    assert resumed.learning_rates == whole.learning_rates[3:6] != whole.learning_rates[:3]


def test_a_run_with_long_epochs_goes_on_as_if_it_had_not_been_interrupted(trained, tmp_path, monkeypatch):
    kept = {"run_id": "r", "results": tmp_path, "machine": "m", "schedule": "cosine"}
    (tmp_path / "m").mkdir()

    def interrupt():
        """Interrupts a run in its second epoch."""

        def losses():
            yield from [1.0] * 3
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            trained(0.2, trainer_class=partial(Timed, losses=losses()), **kept)

    interrupt()
    # No epoch took longer than the limit.
    assert list((tmp_path / "m").iterdir()) == []
    monkeypatch.setattr(loop, "LONG_EPOCH_SECONDS", 2 * STEP_SECONDS)
    interrupt()
    assert (tmp_path / "m/r.checkpoint" / checkpoints.NAME).exists()
    whole, resumed = trained(0.2, 0.7, schedule="cosine"), trained(0.7, resume=True, **kept)
    names = [field.name for field in dataclasses.fields(whole)]
    different = {name for name in names if getattr(whole, name) != getattr(resumed, name) and not name.startswith("peak_memory")}
    assert different - {"started_at"} == {"resumed_after_epochs"}
    assert (resumed.resumed_after_epochs, resumed.time_to_solution_seconds) == (0, TIME_TO_SOLUTION)
    assert not (tmp_path / "m/r.checkpoint").exists()


def test_clocks_start_together_when_the_energys_counters_are_open_and_before_the_data_is_touched(trained, monkeypatch):
    order, begin = [], loop.gpus.count_joules

    class Meeting(Timed):
        def sum(self, values):
            order.append("meet")
            return super().sum(values)

        def load(self):
            order.append("load")
            return super().load()

    monkeypatch.setattr(loop.gpus, "count_joules", lambda *arguments: order.append("open") or begin(*arguments))
    trained(1.0, trainer_class=Meeting)
    opened = order.index("open")
    assert order[opened : opened + 3] == ["open", "meet", "load"]


class BesideASlowReader(Timed):
    """Another rank reads the data for seven seconds more."""

    has_read = False

    def load(self):
        self.has_read = True
        return super().load()

    def sum(self, values):
        if self.has_read:
            self.now, self.has_read = self.now + 7.0, False
        return super().sum(values)


def test_waiting_for_a_rank_that_reads_longer_is_on_the_clock(trained):
    record, alone = trained(1.0, trainer_class=BesideASlowReader), trained(1.0)
    assert record.time_to_solution_seconds == alone.time_to_solution_seconds + 7.0
    assert record.check_seconds == alone.check_seconds


class Queued(Timed):
    """Its losses are computed when they are asked for, as those of steps that are queued on a GPU."""

    def train_epoch(self, batches, observe):
        super().train_epoch(batches, lambda _: observe(Late(self)))


class Late:
    """A loss that takes a second to become a number, the first time."""

    def __init__(self, trainer):
        self.trainer, self.seconds = trainer, 1.0

    def __float__(self):
        self.trainer.now += self.seconds
        self.seconds = 0.0
        return 2.5


def test_an_epoch_ends_when_its_losses_are_computed(trained, monkeypatch):
    monkeypatch.setattr(loop, "PROGRESS_INTERVAL_SECONDS", 1e9)
    record = trained(1.0, trainer_class=Queued)
    assert record.losses == [2.5] * 3
    assert record.train_seconds == [3 * (STEP_SECONDS + 1.0)] == [sum(record.step_seconds)]


class OfOneWorker(Timed):
    """One rank of three, which may not have trained: of the others one trained, with a loss of 3, and one did not."""

    def sum(self, values):
        return values + np.array([[3.0] * 3, [1.0] * 3]) if np.ndim(values) == 2 else values


@pytest.mark.parametrize(("trainer_class", "loss"), [(OfOneWorker, 2.0), (partial(OfOneWorker, losses=itertools.repeat(NO_LOSS)), 3.0)])
def test_the_loss_of_a_step_is_the_mean_over_the_ranks_that_trained(trained, trainer_class, loss):
    assert trained(1.0, trainer_class=trainer_class).losses == [loss] * 3


FIRST = "the first that is not finite, after the update of step 1"
SKIPPED = "for which the library has skipped the step"


@pytest.mark.parametrize(
    ("attributes", "accuracies", "num_epochs", "message"),
    [
        # The predictions of a loss that is NaN may be right.
        ({"loss_of_evaluation": math.nan}, (1.0,), 1, "the loss of the evaluation after epoch 1 is nan"),
        ({"losses": iter([1.0] * 4 + [math.inf] * 2)}, (0.1, 1.0), 2, f"the loss of step 2 of epoch 2 is inf, {FIRST};"),
        ({"skipped_step": 5}, (0.1, 1.0), 2, f"a gradient of step 2 of epoch 2 is not finite, {SKIPPED}; lower"),
    ],
)
def test_a_run_ends_after_the_epoch_in_which_its_loss_or_gradient_is_not_finite(trained, attributes, accuracies, num_epochs, message):
    record = new_record()
    with pytest.raises(Diverged, match=message):
        trained(*accuracies, trainer_class=partial(Timed, **attributes), record=record)
    assert (len(record.losses), len(record.step_seconds)) == (3 * num_epochs, 3 * num_epochs)
    assert record.reached is False
    assert record.time_to_solution_seconds is record.samples_per_second is None


@pytest.mark.parametrize("buffers", [{}, {"buffer/norm.num_batches": np.array(0)}])
def test_training_starts_from_the_initial_parameters_and_the_buffers_before_the_warm_up(buffers, trained):
    trainer, record, heartbeats = Timed(parameters=PARAMETERS | buffers), new_record(), []
    loop.prepare(trainer, SETTINGS, record, lambda: heartbeats.append("a step, or the initial parameters"))
    assert len(heartbeats) == loop.NUM_WARMUP_STEPS + 1
    assert record.parameter_digests == [weights.digest(PARAMETERS).hex()]
    assert [trainer.parameters[name] for name in buffers] == [0] * len(buffers)
    of_a_point = {"parameters": [8], "gradients": [4], "optimizer_state": [2]}
    assert dataclasses.asdict(record.tensor_bytes_by_rank) == dict.fromkeys(POINTS, of_a_point)
    after = trained(0.2, 0.7, trainer_class=partial(Timed, parameters=PARAMETERS | buffers))
    assert record.buffers_in_sync is after.buffers_in_sync is (True if buffers else None)


def test_ranks_that_share_a_gpu_are_refused_before_the_warm_up_unless_they_may(monkeypatch):
    def refuse(*_):
        raise UserError("ranks 0 and 1 share the GPU")

    monkeypatch.setattr(loop.gpus, "expect_own", refuse)
    trainer = Timed()
    with refused("ranks 0 and 1 share the GPU"):
        loop.prepare(trainer, SETTINGS, new_record())
    assert trainer.now == 0
    loop.prepare(trainer, dataclasses.replace(SETTINGS, share_gpu=True), new_record())
    assert trainer.now > 0


def test_a_run_whose_library_skips_a_step_of_the_warm_up_ends_before_training():
    with pytest.raises(Diverged, match=f"a gradient of step {loop.NUM_WARMUP_STEPS} of the warm-up is not finite, {SKIPPED}; check"):
        loop.prepare(Timed(skipped_step=loop.NUM_WARMUP_STEPS), SETTINGS, new_record())


def test_the_turns_of_other_runs_do_not_count(trained, request):
    alone = trained(0.2, 0.7)
    # Two of the three steps of an epoch.
    request.getfixturevalue("side_by_side")
    in_turns = trained(0.2, 0.7)
    times = ("time_to_solution_seconds", "load_seconds", "train_seconds", "eval_seconds", "step_seconds", "samples_per_second")
    assert [getattr(in_turns, name) for name in times] == [pytest.approx(getattr(alone, name)) for name in times]
    # A turn ends after two steps of the first epoch, with it, and after two steps of the second.
    assert (in_turns.num_turns, in_turns.turns_of_others_seconds) == (3, 3 * STOPPED_SECONDS)
    assert (alone.num_turns, alone.turns_of_others_seconds) == (0, 0.0)


@pytest.mark.usefixtures("side_by_side")
def test_each_epoch_of_a_delayed_run_takes_5_percent_longer_with_its_evaluation_and_without_the_turns_of_others(trained, monkeypatch):
    stopped_at = []

    class Sleeping(Timed):
        def sleep(self, seconds):
            self.now += seconds

        def stop(self):
            stopped_at.append(self.now)
            super().stop()

        def load(self):
            monkeypatch.setattr(loop.time, "sleep", self.sleep)
            return super().load()

    plain = trained(0.2, 0.7, trainer_class=Sleeping)
    stopped_at.clear()
    delayed = trained(0.2, 0.7, trainer_class=Sleeping, control="delayed")
    # The first turn, of two steps, already has its wait.
    assert stopped_at[0] == LOAD_SECONDS + 2 * 1.05 * STEP_SECONDS
    for name in ("train_seconds", "eval_seconds"):
        assert getattr(delayed, name) == pytest.approx([1.05 * seconds for seconds in getattr(plain, name)])
    assert sum(delayed.step_seconds) == pytest.approx(sum(delayed.train_seconds))
    assert delayed.turns_of_others_seconds == plain.turns_of_others_seconds > 0
    assert delayed.load_seconds == plain.load_seconds


@pytest.mark.usefixtures("side_by_side")
def test_the_length_of_a_turn_is_that_of_plain_steps(monkeypatch):
    trainer = Timed(memory_seconds=5.0)
    monkeypatch.setattr(loop.time, "perf_counter", lambda: trainer.now)
    turns = loop.prepare(trainer, SETTINGS, new_record())
    turns.begin(100)
    assert turns.num_steps == 2


def test_what_only_tandem_does_is_timed_apart(trained):
    record, plain = trained(0.2, 0.7, trainer_class=partial(Timed, state_seconds=1000.0)), trained(0.2, 0.7)
    assert record.time_to_solution_seconds == plain.time_to_solution_seconds
    assert (record.check_seconds, plain.check_seconds) == (2000.0, 0.0)

"""Checkpoints: any backend resumes the run of any other, and the checkpoint of a different run is refused."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest

from common import checkpoints
from common.checkpoints import BEST, LAST, About
from common.errors import UserError
from tests.frameworks.test_agreement import SAME_TRAINING, disagreement
from tests.support import small_data
from tests.support.backends import DISTRIBUTED
from tests.support.running import train

ABOUT = About(epochs=2, best_accuracy=0.5, workload_digest="a", seed=1, global_batch=8, learning_rate_factor=4.0)
STATE = {"dense1.weight": np.arange(6.0).reshape(2, 3), "adam_step/dense1.weight": np.array(7.0, np.float32)}


def test_a_checkpoint_survives_writing_and_reading(tmp_path):
    path = tmp_path / LAST
    checkpoints.write(path, STATE, ABOUT)
    state, about = checkpoints.read(path)
    assert about == ABOUT
    assert state.keys() == STATE.keys()
    for name, value in STATE.items():
        assert (state[name].dtype, state[name].shape) == (value.dtype, value.shape)
        np.testing.assert_array_equal(state[name], value)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"no checkpoint at all", None])
def test_a_file_that_is_no_checkpoint_is_refused(content, tmp_path):
    path = tmp_path / LAST
    if content is None:
        checkpoints.save_file(STATE, path)
    else:
        path.write_bytes(content)
    with pytest.raises(UserError, match="is not a Tandem checkpoint"):
        checkpoints.read(path)


@pytest.mark.parametrize(
    ("changes", "epochs", "message"),
    [
        ({"workload_digest": "b"}, 3, "use the same workload, data, optimizer"),
        ({"seed": 2}, 3, "(seed 1 there, 2 here)"),
        ({"global_batch": 16}, 3, "(global_batch 8 there, 16 here)"),
        ({"learning_rate_factor": 2.0}, 3, "--learning-rate-factor"),
        ({}, 2, "--epochs 2 leaves nothing to train"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(changes, epochs, message):
    with pytest.raises(UserError) as raised:
        checkpoints.check("it", ABOUT, ABOUT._replace(epochs=0, best_accuracy=None, **changes), epochs)
    assert message in str(raised.value)


def test_a_checkpoint_of_the_same_run_is_accepted():
    checkpoints.check("it", ABOUT, ABOUT._replace(epochs=0, best_accuracy=None), 3)


def test_a_run_does_not_resume_from_another_training(tmp_path):
    checkpoints.write(tmp_path / LAST, STATE, ABOUT)
    settings = SimpleNamespace(checkpoint_dir=tmp_path, epochs=3)
    with pytest.raises(UserError, match="seed"):
        checkpoints.resume(None, settings, ABOUT._replace(seed=2))
    taken_over = []
    assert checkpoints.resume(SimpleNamespace(restore=taken_over.append), settings, ABOUT._replace(epochs=0)) == ABOUT
    assert [state.keys() for state in taken_over] == [STATE.keys()]


class Kept:
    """A trainer with what `keep` uses."""

    class ranks:
        rank = 0

    def state(self):
        return STATE


@pytest.mark.parametrize(
    ("epoch", "every", "accuracy", "ended", "written", "best"),
    [
        (2, 2, 0.5, False, {LAST}, 0.5),
        (3, 2, 0.5, False, set(), 0.5),
        (3, 2, 0.6, False, {BEST}, 0.6),
        (4, 2, 0.6, False, {LAST, BEST}, 0.6),
        (3, 2, 0.4, True, {LAST}, 0.5),
        (3, 1, None, False, {LAST}, 0.5),
    ],
)
def test_what_is_due_after_an_epoch_is_written(epoch, every, accuracy, ended, written, best, tmp_path):
    from common.config import Settings

    settings = Settings(checkpoint_dir=tmp_path, checkpoint_every=every)
    about = checkpoints.keep(Kept(), settings, ABOUT._replace(epochs=epoch), accuracy, ended)
    assert {path.name for path in tmp_path.iterdir()} == written
    assert about == ABOUT._replace(epochs=epoch, best_accuracy=best)
    for name in written:
        assert checkpoints.read(tmp_path / name)[1] == about


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The arguments that read 20 samples, three steps an epoch."""
    return small_data.write(tmp_path_factory.mktemp("data"), 20)


def arguments_for(data, workload, optimizer, *others):
    fixed = (*SAME_TRAINING, *data[workload], "--optimizer", optimizer, "--precision", "fp64", "--warmup-epochs", "3.5")
    return (*fixed, "--no-stop-at-target", *others)


@pytest.fixture(scope="module")
def uninterrupted(data, tmp_path_factory):
    """A function that returns the record of four epochs without interruption."""

    @functools.cache
    def once(workload, optimizer):
        return train("single", 1, tmp_path_factory.mktemp("run"), *arguments_for(data, workload, optimizer, "--epochs", "4"))[1]

    return once


# Each backend resumes from the previous one in a ring. A change of framework is the strongest test.
CROSSING = ("horovod_torch", "horovod_tf")
RING = [
    pytest.param(*pair, marks=() if pair == CROSSING else pytest.mark.long)
    for pair in (CROSSING, *zip(DISTRIBUTED, (*DISTRIBUTED[1:], DISTRIBUTED[0]), strict=True))
]


@pytest.mark.matrix
@pytest.mark.parametrize("optimizer", ["sgd", pytest.param("adam", marks=pytest.mark.long)])
@pytest.mark.parametrize(("before", "after"), RING)
def test_another_backend_resumes_the_same_run(uninterrupted, data, before, after, optimizer, tmp_path):
    # DeepSpeed's master parameters are float32, whose rounding the CNN's training amplifies.
    workload, bound = ("transformer", 1e-6) if "deepspeed_zero" in (before, after) else ("cnn", 1e-10)
    kept = ("--checkpoint-dir", str(tmp_path / "kept"))
    status, record, _ = train(before, 2, tmp_path, *arguments_for(data, workload, optimizer, "--epochs", "2", *kept))
    assert (status, record["resumed_after_epochs"]) == (0, None), record["error"]
    status, record, parameters = train(after, 2, tmp_path, *arguments_for(data, workload, optimizer, "--epochs", "4", *kept, "--resume"))
    assert (status, record["resumed_after_epochs"], record["time_to_solution_seconds"]) == (0, 2, None), record["error"]
    whole = uninterrupted(workload, optimizer)
    assert record["learning_rates"] == whole["learning_rates"][6:]
    assert disagreement(record, whole | {"losses": whole["losses"][6:]}) < bound
    state, about = checkpoints.read(tmp_path / "kept" / LAST)
    assert about.epochs == 4
    for name, values in parameters.items():
        np.testing.assert_array_equal(state[name], values)


@pytest.mark.matrix
def test_resume_without_a_checkpoint_starts_and_another_run_is_refused(data, tmp_path):
    kept = ("--checkpoint-dir", str(tmp_path / "kept"), "--resume")
    status, record, _ = train("single", 1, tmp_path, *arguments_for(data, "cnn", "sgd", "--epochs", "1", *kept))
    assert (status, record["resumed_after_epochs"], len(record["losses"])) == (0, 0, 3)
    status, record, _ = train("single", 1, tmp_path, *arguments_for(data, "cnn", "adam", "--epochs", "2", *kept))
    assert (status, record["status"]) == (2, "failed")
    assert "belongs to a different run" in record["error"]

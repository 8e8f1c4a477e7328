"""Checkpoints: any backend resumes the run of any other, and the checkpoint of a different run is refused."""

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from common.config import Settings
from common.declarations import BASELINE
from common.ranks.launcher_variables import Ranks
from common.training import checkpoints
from common.training.checkpoints import NAME, About
from tests.frameworks.test_agreement import disagreement
from tests.support import small_data
from tests.support.agreement_runs import SAME_TRAINING
from tests.support.backends import EXACT, FLOAT32_MASTERS, IN_ORDER, ON_TENSORFLOW, SERVED, started_in_order, trains
from tests.support.mistakes import refused
from tests.support.running import train_in_turn

ABOUT = About(epochs=2, workload_digest="a", seed=1, global_batch=8, learning_rate_factor=4.0)
STATE = {
    "dense1.weight": np.arange(6.0).reshape(2, 3), "dense1.bias": np.zeros(2),
    "adam_mean/dense1.weight": np.ones((2, 3)), "adam_mean/dense1.bias": np.ones(2),
    "adam_step/dense1.weight": np.array(7.0, np.float32), "adam_step/dense1.bias": np.array(7.0, np.float32),
}  # fmt: skip


def test_a_checkpoint_survives_writing_and_reading(tmp_path):
    path = tmp_path / NAME
    checkpoints.write(path, STATE, ABOUT)
    state, about = checkpoints.read(path)
    assert about == ABOUT
    assert state.keys() == STATE.keys()
    for name, value in STATE.items():
        assert (state[name].dtype, state[name].shape) == (value.dtype, value.shape)
        np.testing.assert_array_equal(state[name], value)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"no checkpoint at all", None])
def test_a_file_that_is_no_checkpoint_is_refused(content, tmp_path):
    path = tmp_path / NAME
    if content is None:
        checkpoints.save_file(STATE, path)
    else:
        path.write_bytes(content)
    with refused("is not a Tandem checkpoint"):
        checkpoints.read(path)


@pytest.mark.parametrize(
    ("changes", "epochs", "message"),
    [
        ({"workload_digest": "b"}, 3, "use the same workload, data, optimizer"),
        ({"seed": 2}, 3, "(seed 1 there, 2 here)"),
        ({"global_batch": 16}, 3, "(global_batch 8 there, 16 here)"),
        ({"learning_rate_factor": float("nan")}, 3, "the number of ranks"),
        ({}, 2, "--epochs 2 leaves nothing to train"),
    ],
)
def test_a_run_does_not_resume_from_another_training(changes, epochs, message, tmp_path):
    checkpoints.write(tmp_path / NAME, STATE, ABOUT)
    begun = ABOUT._replace(epochs=0, **changes)
    with refused(message):
        checkpoints.resume(None, Settings(checkpoint_dir=tmp_path, epochs=epochs), begun)


def trainer(state=STATE):
    """A trainer with what checkpoints use; what it has taken over is in `restored`."""
    restored = []
    return SimpleNamespace(ranks=Ranks(), state=lambda with_optimizer_state=True: state, restore=restored.append, restored=restored)


def test_a_run_resumes_with_the_state_of_its_checkpoint(tmp_path):
    settings, resuming = Settings(checkpoint_dir=tmp_path, epochs=4), trainer()
    assert checkpoints.resume(resuming, settings, ABOUT) == ABOUT
    checkpoints.keep(resuming, settings, ABOUT._replace(epochs=3))
    assert checkpoints.resume(resuming, settings, ABOUT._replace(epochs=0)).epochs == 3
    assert [state.keys() for state in resuming.restored] == [STATE.keys()]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The arguments that read 20 samples, three steps an epoch."""
    return small_data.write(tmp_path_factory.mktemp("data"), 20)


class Chain(NamedTuple):
    """Runs of a workload, each of which resumes from the one before; their losses are those of one whole run within the bound."""

    workload: str
    optimizer: str
    backends: tuple
    bound: float


# Processes train one after the other, and in them backends in this order. TensorFlow's strategy, which would need processes of its own, has
# the state of the others: tests/frameworks/test_agreement.py shows that it takes one over.
ORDER = (*ON_TENSORFLOW, *IN_ORDER)


def in_order(names):
    return sorted(names, key=ORDER.index)


CHAINED = [backend for backend in EXACT if backend in ORDER]
ON_CNN = [backend for backend in CHAINED if trains(backend, "cnn")]
# A change of framework is the strongest test. One process has the last part, and the whole run. Adam's state has all kinds of numbers.
CHAINS = {
    "cnn-adam": Chain("cnn", "adam", (*in_order(ON_CNN), BASELINE), 1e-10),
    # What TensorFlow, shards and dealt parameters have of momentum.
    "cnn-sgd": Chain("cnn", "sgd", (*in_order({"horovod_tf", "fsdp", "zero_redundancy", "pipeline"} & {*ON_CNN}), BASELINE), 1e-10),
    # The server has the optimizer state, of one worker here.
    "transformer-adam": Chain("transformer", "adam", ("horovod_tf", *in_order([*{*CHAINED} - {*ON_CNN}, *SERVED]), BASELINE), 1e-10),
    # DeepSpeed's master parameters are float32, whose rounding the CNN's training amplifies.
    **{backend: Chain("transformer", "adam", ("ddp", backend, BASELINE), 1e-6) for backend in FLOAT32_MASTERS},
}  # fmt: skip


@pytest.fixture(scope="module")
def resumed(data, tmp_path_factory, request):
    """Returns {chain: (the record of the whole run, [(record, final parameters) of each run], the folder of checkpoints)}.

    They are those of the collected tests. All runs of a framework that can be made in the same processes are.
    """
    folder = tmp_path_factory.mktemp("chains")
    test = test_another_backend_resumes_the_same_run.__name__
    names = [item.callspec.params["name"] for item in request.session.items if item.originalname == test]

    def run(name, backend, num_epochs, *options):
        chain = CHAINS[name]
        fixed = (*SAME_TRAINING, "--small", *data[chain.workload], "--optimizer", chain.optimizer, "--precision", "fp64")
        return backend, "none", *fixed, "--warmup-epochs", "3.5", "--no-stop-at-target", "--epochs", num_epochs, *options

    runs = {(name, None): run(name, BASELINE, len(CHAINS[name].backends)) for name in names}
    for name in names:
        for number, backend in enumerate(CHAINS[name].backends):
            options = ("--checkpoint-dir", folder / name, *(["--resume"] if number else []))
            runs[name, number] = run(name, backend, number + 1, *options)
    of_ranks = in_order({backend for backend, *_ in runs.values()} - {BASELINE})
    results = {}
    for backends, num_ranks in [*((group, 2) for group in dict.fromkeys(map(started_in_order, of_ranks))), ((BASELINE,), 1)]:
        chosen = {
            place: run for backend in backends for place, run in runs.items()
            if run[0] == backend and (backend == BASELINE) == (num_ranks == 1)
        }  # fmt: skip
        trained = train_in_turn(num_ranks, folder / backends[0], list(chosen.values()))
        results |= dict(zip(chosen, trained, strict=True))
    return {
        name: (results[name, None][0], [results[name, number] for number in range(len(CHAINS[name].backends))], folder / name)
        for name in names
    }


@pytest.mark.matrix
@pytest.mark.parametrize("name", CHAINS)
def test_another_backend_resumes_the_same_run(name, resumed):
    whole, results, folder = resumed[name]
    num_steps = len(whole["losses"]) // len(results)
    assert num_steps > 1
    for number, (backend, (record, _)) in enumerate(zip(CHAINS[name].backends, results, strict=True)):
        assert (record["status"], record["resumed_after_epochs"]) == ("ok", number or None), record["error"]
        assert record["backend"] == backend
        assert (len(record["losses"]), record["time_to_solution_seconds"]) == (num_steps, None)
        steps = slice(num_steps * number, num_steps * (number + 1))
        expected = {kind: whole[kind][steps] for kind in ("losses", "learning_rates")}
        assert record["learning_rates"] == expected["learning_rates"]
        assert disagreement(record, expected) < CHAINS[name].bound, backend
    # Each run has replaced the checkpoint of the one before.
    state, about = checkpoints.read(folder / NAME)
    _, parameters = results[-1]
    assert about.epochs == len(results)
    for key, values in parameters.items():
        np.testing.assert_array_equal(state[key], values)

"""--verify passes sound models of the user's own, and names what is wrong with others."""

import pytest

from common.command_line import flag
from launch.run import verify
from tests.support.made_records import typed
from tests.support.own_models import BEGINNING, SOUND, TRAPS
from tests.support.running import train_in_turn

pytestmark = pytest.mark.matrix
# Four steps.
SETTINGS = verify.SETTINGS | {"batch_size": 4}
MODELS = SOUND | TRAPS
# They agree with one process, or differ, at the end of a run.
TRAINED = {
    "ddp": (*SOUND, "batch-norm", "hidden-state", "tied-weights"),
    "fsdp": ("mlp-mixer", "vision-transformer", "batch-norm", "tied-weights"),
    "horovod_torch": ("mlp-mixer", "lstm", "batch-norm", "hidden-state", "tied-weights"),
}
BATCH_NORM = (
    "the model has buffers: statistics of batch norm are those of a rank's batch, with every backend; SyncBatchNorm has those of all"
)
HIDDEN_STATE = "the loss is no mean over samples, or a layer keeps state or draws numbers of its own"


def flags_of(settings):
    for name, value in settings.items():
        yield from (flag(name if value else f"no_{name}"),) if isinstance(value, bool) else (flag(name), value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def arguments(folder):
    """{model: arguments of a run that verifies it}. The digest of a model has the modules in its folder, so that each has its own."""
    paths = {name: folder / name / "mine.py" for name in MODELS}
    for name, path in paths.items():
        path.parent.mkdir()
        path.write_text(BEGINNING + MODELS[name])
    return {name: ("--model", path, *flags_of(SETTINGS)) for name, path in paths.items()}


@pytest.fixture(scope="module")
def references(folder, arguments):
    """{model: the record of one process}."""
    results = train_in_turn(1, folder / "single", [("single", "none", *arguments[name]) for name in MODELS])
    return {name: record for name, (record, _) in zip(MODELS, results, strict=True)}


@pytest.fixture(scope="module")
def verified(folder, arguments, references):
    """A function of pairs (backend, model), which trains them in the same processes at 2 ranks and gives {pair: Verified}."""

    def verified(*pairs):
        results = train_in_turn(2, folder / "-".join(pairs[0]), [(backend, "none", *arguments[model]) for backend, model in pairs])
        compared = (verify.verified(typed([references[model], record])) for (_, model), (record, _) in zip(pairs, results, strict=True))
        return dict(zip(pairs, (run for (run,) in compared), strict=True))

    return verified


@pytest.mark.parametrize("names", [("ddp", "fsdp"), ("horovod_torch",)], ids="-".join)
def test_sound_models_agree_and_batch_norm_hidden_state_and_tied_weights_are_found(names, verified):
    # A run that fails is the last in its processes.
    runs = verified(*((name, model) for name in names for model in TRAINED[name]))
    reasons = {"batch-norm": BATCH_NORM, "hidden-state": HIDDEN_STATE}
    for (name, model), run in runs.items():
        if (name, model) == ("fsdp", "tied-weights"):
            assert "'layers.0.table.weight' is shared with a parameter already managed by another FSDP group" in run.reason
        else:
            assert (name, model, run.reason, run.first_step) == (name, model, reasons.get(model), 1 if model in reasons else None)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("unused-parameters", "DDP waits for the gradient of forgotten.weight, forgotten.bias, which a step does not have"),
        ("unseeded-layer", verify.UNSEEDED),
        ("unseeded-data", verify.UNSEEDED_DATA),
    ],
)
def test_models_that_cannot_be_trained_on_several_ranks_are_named(model, reason, verified):
    (run,) = verified(("ddp", model)).values()
    assert run.reason.startswith(reason)

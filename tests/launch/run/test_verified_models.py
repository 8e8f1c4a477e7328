"""Sound models of the user's own train with every library as in one process, and --verify names the cause where one differs."""

import pytest

from common.backends import file_of, settings_of
from common.command_line import flag
from common.config import Settings
from launch.run import verify
from tests.frameworks import test_user_model
from tests.support.made_records import typed
from tests.support.planted_bugs import OF_PROCESSES, OF_RANKS, OF_SHARDS, WRONG, written
from tests.support.running import train_in_turn
from tests.support.sound_models import SOUND
from tests.support.sound_traps import LOOK_WRONG

pytestmark = pytest.mark.matrix
# Nested samples in lists, a metric of several sums, and an optimizer and dropout of its own.
NESTED = "nested-batches"
SOUND_MODELS = SOUND | LOOK_WRONG | {NESTED: test_user_model.SOUND}
BUGS = WRONG | OF_RANKS | OF_PROCESSES | OF_SHARDS
TEXTS = SOUND_MODELS | {name: bug.text for name, bug in BUGS.items()}
SETTINGS = verify.SETTINGS | {"batch_size": 4, "epochs": 1}
# It needs more steps than an epoch has.
LATE = {"a-rank-that-changes-later": {"batch_size": 2, "epochs": 2}}
# The same number of samples, in micro-batches of half the size.
BY_RANK = {"batch_size": 2, "accumulate": 2}
WITH_BATCH_NORM = ("batch-norm", "residual-network", "ragged-batches-and-a-norm")
# What each library makes of its own: the models, in the same processes. A run that fails is the last in them.
TRAINED = {
    "ddp": ("batch-norm", "statistics-in-an-attribute", "layer-without-a-seed"),
    "gradient_averaging": ("experts",),
    "zero_redundancy": ("clipping-optimizer",),
    "fsdp": ("experts", "shared-block"),
    "horovod_torch": (NESTED, "experts"),
    "deepspeed_zero": ("experts", "clipping-optimizer"),
    "deepspeed_zero@2": ("all-functions",),
    "deepspeed_zero@3": ("layer-wise-optimizer",),
}
# DeepSpeed ends otherwise where Horovod has ended MPI.
WITH_DEEPSPEED = tuple(name for name in TRAINED if "deep" in name)
TOGETHER = [tuple(name for name in TRAINED if name not in WITH_DEEPSPEED), WITH_DEEPSPEED]
# What the checks before training let pass.
OF_TRAINING = [
    *OF_RANKS,
    *(name for name, bug in OF_PROCESSES.items() if not any(part in bug.cause for part in ("parameters", "of data()"))),
]
ALL = {
    "ddp": (*SOUND_MODELS, *OF_TRAINING), "fsdp": (*SOUND_MODELS, *OF_SHARDS), "horovod_torch": (*SOUND_MODELS, *OF_TRAINING),
    "deepspeed_zero": (*SOUND_MODELS, *OF_SHARDS),
}  # fmt: skip
# Sound models that a library trains otherwise.
DIFFERING = {
    ("deepspeed_zero", "experts"): "in steps that do not use experts.0.bias",
    **{(name, "clamped-weights"): "the forward pass changes weight" for name in ("fsdp", "deepspeed_zero")},
    ("fsdp", "mean-teacher"): "the forward pass changes teacher.weight",
}
# All ranks begin with the buffers of rank 0, Horovod begins no process group of PyTorch's, and FSDP computes the norm of all shards.
UNSEEN = {
    ("ddp", "mask-by-rank"), ("horovod_torch", "mask-by-rank"), ("horovod_torch", "loss-by-the-process-group"),
    ("fsdp", "clipping-optimizer"), ("fsdp", "layer-wise-optimizer"),
}  # fmt: skip


def flags_of(settings):
    for name, value in settings.items():
        yield from (flag(name if value else f"no_{name}"),) if isinstance(value, bool) else (flag(name), value)


def variant_of(name):
    """The settings that choose a variant."""
    chosen, plain = vars(settings_of(name, Settings())), vars(Settings())
    return {setting: value for setting, value in chosen.items() if value != plain[setting]}


def run_of(backend, model, path, **changes):
    """The arguments of a run, as train_in_turn takes them."""
    settings = SETTINGS | LATE.get(model, {}) | variant_of(backend) | changes
    return (file_of(backend), "none", "--model", path, *flags_of(settings))


def records_of(ranks, folder, runs):
    for record, _ in train_in_turn(ranks, folder, runs):
        # Such as a rank that could not start.
        assert record["status"] != "none", record["error"]
        yield record


def references_of(folder, models):
    """Trains models in one process. Returns {model: (its file, its records)}."""
    # The digest of a model has the modules in its folder, so that each has its own.
    references = {model: (written(folder, model, TEXTS[model]), []) for model in models}
    plain = [run_of("single", model, path) for model, (path, _) in references.items()]
    by_rank = {model: run_of("single", model, references[model][0], **BY_RANK) for model in WITH_BATCH_NORM if model in references}
    for model, record in zip((*references, *by_rank), records_of(1, folder / "1", [*plain, *by_rank.values()]), strict=True):
        references[model][1].append(record)
    return references


def verified(folder, trained, references):
    """Trains models with backends, {backend: models}, at 2 ranks in the same processes. Returns {(backend, model): Verified}."""
    pairs = [(backend, model) for backend, models in trained.items() for model in models]
    runs = [run_of(backend, model, references[model][0]) for backend, model in pairs]
    compared = {}
    for (backend, model), record in zip(pairs, records_of(2, folder / "2", runs), strict=True):
        (compared[backend, model],) = verify.verified(typed([*references[model][1], record]))
    return compared


def expected(backend, model):
    """How the verdict on a run begins, or its cause."""
    if model in WITH_BATCH_NORM:
        return "as 2 micro-batches of one process; statistics are by rank"
    if model in BUGS and (backend, model) not in UNSEEN:
        return BUGS[model].cause
    return DIFFERING.get((backend, model), "agrees")


def expect_verdicts(runs):
    """Expects a verdict of each run, and that of a mistake to be its cause."""
    verdicts = {pair: run.cause or run.verdict for pair, run in runs.items()}
    beginnings = {pair: expected(*pair) for pair in runs}
    assert {pair: verdict[: len(beginnings[pair])] for pair, verdict in verdicts.items()} == beginnings


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    """The references of the models that are TRAINED."""
    return references_of(tmp_path_factory.mktemp("references"), sorted({model for models in TRAINED.values() for model in models}))


@pytest.mark.parametrize("names", TOGETHER, ids=lambda names: names[0])
def test_sound_models_agree_and_the_causes_of_differences_are_found(names, references, tmp_path, monkeypatch):
    # Memory that a library does not initialize has numbers of 3e38, which an optimizer's norms would show.
    monkeypatch.setenv("MALLOC_PERTURB_", "128")
    expect_verdicts(verified(tmp_path, {name: TRAINED[name] for name in names}, references))


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_models_of_all_kinds_train_with_each_library_and_each_planted_mistake_has_its_cause(name, tmp_path):
    expect_verdicts(verified(tmp_path, {name: ALL[name]}, references_of(tmp_path, ALL[name])))

"""--verify passes sound models of the user's own, and names what is wrong with others."""

import pytest

from common.backends import file_of, settings_of
from common.command_line import flag
from common.config import Settings
from launch.run import verify
from tests.frameworks import test_user_model
from tests.support import planted_bugs, sound_models
from tests.support.made_records import typed
from tests.support.running import train_in_turn
from tests.support.user_models import BEGINNING, SOUND, TRAPS

pytestmark = pytest.mark.matrix
# Four steps.
SETTINGS = verify.SETTINGS | {"batch_size": 4, "epochs": 1}
# Nested samples in lists, a metric of several sums, and an optimizer and dropout of its own.
NESTED = "nested-batches"
OF_RANKS = ("experts", "losses-of-the-model")
MODELS = SOUND | TRAPS | {NESTED: test_user_model.SOUND} | {name: sound_models.LOOK_WRONG[name] for name in OF_RANKS}
# The same number of samples, in micro-batches of half the size.
BY_RANK = SETTINGS | {"batch_size": 2, "accumulate": 2}
CLIPPED_BY_SHARDS = ("clipping-optimizer", "layer-wise-optimizer")
# They agree with one process, or differ, at the end of a run. A run that fails is the last in its processes.
TRAINED = {
    "ddp": (*SOUND, NESTED, "batch-norm", "hidden-state", "clipping-hook", "tied-weights", "unused-parameters", *OF_RANKS),
    "gradient_averaging": ("all-functions", NESTED, "clipping-optimizer", "experts"),
    "zero_redundancy": ("all-functions", NESTED, "clipping-optimizer", "accumulating-optimizer"),
    "fsdp": (
        "all-functions", NESTED, "vision-transformer", "batch-norm", "unused-parameters", *OF_RANKS, *CLIPPED_BY_SHARDS, "tied-weights",
    ),
    "horovod_torch": ("all-functions", NESTED, "batch-norm", "hidden-state", "clipping-optimizer", "tied-weights", *OF_RANKS),
    "deepspeed_zero": (
        "all-functions", NESTED, "batch-norm", "unused-parameters", *OF_RANKS, *CLIPPED_BY_SHARDS, "accumulating-optimizer",
    ),
    "deepspeed_zero@2": ("all-functions",),
    "deepspeed_zero@3": ("all-functions", "layer-wise-optimizer"),
}  # fmt: skip
# Of the clips, FSDP computes that of all shards, and zero_redundancy deals whole parameters.
DIFFERING = {
    "hidden-state": TRAINED, "clipping-hook": TRAINED, "accumulating-optimizer": TRAINED,
    "clipping-optimizer": ("zero_redundancy", "deepspeed_zero"),
    "experts": ("deepspeed_zero",),
    "layer-wise-optimizer": ("deepspeed_zero", "deepspeed_zero@3"),
}  # fmt: skip
CAUSES = {
    "hidden-state": "a step reads scale", "clipping-hook": "the backward pass changes gradients",
    "accumulating-optimizer": "optimizer() leaves the parameters as they are",
    "experts": "in steps that do not use experts.0.bias",
    **dict.fromkeys(CLIPPED_BY_SHARDS, "optimizer() updates a value by others"),
}  # fmt: skip


def flags_of(settings):
    for name, value in settings.items():
        yield from (flag(name if value else f"no_{name}"),) if isinstance(value, bool) else (flag(name), value)


def variant_of(name):
    """The flags that choose a variant."""
    chosen, plain = vars(settings_of(name, Settings())), vars(Settings())
    return flags_of({setting: value for setting, value in chosen.items() if value != plain[setting]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def paths(folder):
    """Returns {model: its file}. The digest of a model has the modules in its folder, so that each has its own."""
    paths = {name: folder / name / "mine.py" for name in MODELS}
    for name, path in paths.items():
        path.parent.mkdir()
        path.write_text(BEGINNING + MODELS[name])
    return paths


@pytest.fixture(scope="module")
def references(folder, paths):
    """Returns {model: the records of one process, also with the micro-batches of ranks where the model has batch norm}."""
    names = sorted({name for models in TRAINED.values() for name in models} | {"unseeded-layer"})
    runs = [(name, SETTINGS) for name in names] + [("batch-norm", BY_RANK)]
    trained = [("single", "none", "--model", paths[name], *flags_of(settings)) for name, settings in runs]
    references = {name: [] for name in names}
    for (name, _), (record, _) in zip(runs, train_in_turn(1, folder / "single", trained), strict=True):
        references[name].append(record)
    return references


@pytest.fixture(scope="module")
def verified(folder, paths, references):
    """A function of pairs (backend, model), which trains them in the same processes at 2 ranks and gives {pair: Verified}."""

    def verified(*pairs):
        trained = [
            (file_of(backend), "none", "--model", paths[model], *flags_of(SETTINGS), *variant_of(backend)) for backend, model in pairs
        ]
        results = train_in_turn(2, folder / "-".join(pairs[0]), trained)
        compared = (verify.verified(typed([*references[model], record])) for (_, model), (record, _) in zip(pairs, results, strict=True))
        return dict(zip(pairs, (run for (run,) in compared), strict=True))

    return verified


@pytest.mark.parametrize(
    "names",
    # DeepSpeed ends otherwise where Horovod has ended MPI.
    [("ddp", "gradient_averaging", "zero_redundancy", "fsdp"), ("horovod_torch",), tuple(name for name in TRAINED if "deepspeed" in name)],
    ids=lambda names: names[0],
)
def test_sound_models_agree_and_the_causes_of_differences_are_found(names, verified, paths, monkeypatch):
    # Memory that a library does not initialize has numbers of 3e38, which an optimizer's norms would show.
    monkeypatch.setenv("MALLOC_PERTURB_", "128")
    runs = verified(*((name, model) for name in names for model in TRAINED[name]))
    for (name, model), run in runs.items():
        if (name, model) == ("fsdp", "tied-weights"):
            assert "'layers.0.table.weight' is shared with a parameter already managed by another FSDP group" in run.problem
        elif model == "batch-norm":
            assert (name, run.verdict) == (name, "as 2 micro-batches of one process; statistics are by rank")
        elif name in DIFFERING.get(model, ()):
            assert (name, model, (run.cause or run.problem)[: len(CAUSES[model])]) == (name, model, CAUSES[model])
        else:
            assert (name, model, run.problem) == (name, model, None)


def test_parameters_that_follow_no_seed_are_named(verified):
    (run,) = verified(("ddp", "unseeded-layer")).values()
    assert run.cause.startswith("the parameters of model() differ from process to process")


# What the checks before training let pass.
PLANTED = {
    **planted_bugs.OF_RANKS,
    **{name: bug for name, bug in planted_bugs.OF_PROCESSES.items() if "the parameters" not in bug.cause and "of data()" not in bug.cause},
}
LATE = "a-rank-that-changes-later"


@pytest.mark.long
@pytest.mark.parametrize("backend", ["ddp", "horovod_torch"])
def test_planted_mistakes_of_ranks_differ_with_their_causes_and_sound_models_agree(backend, tmp_path):
    sound = {name: text for name, text in sound_models.LOOK_WRONG.items() if name != "few-different-samples"}
    texts = {name: bug.text for name, bug in PLANTED.items()} | sound | {"unused": sound_models.UNUSED}
    paths = {name: planted_bugs.written(tmp_path, name, text) for name, text in texts.items()}
    # The late one needs more steps than an epoch has.
    flags = {name: tuple(flags_of(SETTINGS | {"batch_size": 2 if name == LATE else 4, "epochs": 2})) for name in paths}
    records = {}
    for ranks, trainer in ((1, "single"), (2, backend)):
        runs = [(trainer, "none", "--model", path, *flags[name]) for name, path in paths.items()]
        for name, (record, _) in zip(paths, train_in_turn(ranks, tmp_path / trainer, runs), strict=True):
            records.setdefault(name, []).append(record)
    causes = {}
    for name, of_model in records.items():
        (run,) = verify.verified(typed(of_model))
        causes[name] = run.cause if run.problem else "agrees"
    # All ranks begin with the buffers of rank 0, and Horovod begins no process group of PyTorch's.
    unseen = {"mask-by-rank"} | ({"loss-by-the-process-group"} if backend == "horovod_torch" else set())
    # A rank's batch has statistics of its own, and no micro-batches are trained here.
    del causes["ragged-batches-and-a-norm"], paths["ragged-batches-and-a-norm"]
    expected = {name: "agrees" if name in {*sound, "unused", *unseen} else PLANTED[name].cause for name in paths}
    assert {name: (cause or "")[: len(expected[name])] for name, cause in causes.items()} == expected

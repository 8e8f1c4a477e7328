"""Settings: command line, validation, defaults of the workload, help and digest."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from pydantic import TypeAdapter

from common import workloads
from common.command_line import flag, parse
from common.config import MAX_SEED, TRAINING_SETTINGS, Settings, as_arguments, as_json, check
from common.data import datasets
from common.model import conventions, description
from common.model.cnn import Cnn
from common.model.description import parameters_of
from common.model.weights import constant, normal
from common.workloads import SIZES
from launch.report.runs import collect
from tests.support.mistakes import refusal
from tests.support.running import ROOT

PROGRAM = "python -m frameworks.some"
FIELDS = [field.name for field in dataclasses.fields(Settings)]

# Values other than the default, where the type does not give one.
SPECIAL = {"workload": "other", "dataset": "mnist", "trace": "mpi", "library_setting": "none"}


def another(name, kind):
    """A valid value of a setting other than its default, and than that of the workload."""
    if name in SPECIAL:
        return SPECIAL[name]
    default, kinds = getattr(Settings(), name), (kind, *get_args(kind))
    if choices := [choice for literal in kinds if get_origin(literal) is Literal for choice in get_args(literal)]:
        return choices[-1]
    if bool in kinds:
        return not default
    if int in kinds:
        return (default or 1) + 1
    if float in kinds:
        return (default or 0.5) / 2
    return Path("my folder") if Path in kinds else "mine"


CHANGED = {name: another(name, get_type_hints(Settings)[name]) for name in FIELDS}


def changed(name):
    """The settings with one of them changed, and with the settings that it requires."""
    required = {"resume": "checkpoint_dir"}.get(name)
    return Settings(**{name: CHANGED[name]} | ({required: CHANGED[required]} if required else {}))


def parsed(arguments):
    return parse(Settings, PROGRAM, "Trains.", arguments)


def test_default_settings_need_no_arguments_and_the_changed_ones_are_others():
    assert as_arguments(Settings()) == []
    assert parsed([]) == Settings()
    assert not [name for name in FIELDS if CHANGED[name] == getattr(Settings(), name)]


def test_every_setting_is_read_by_a_program():
    sources = [path for room in ("common", "frameworks", "launch") for path in (ROOT / room).rglob("*.py") if path.name != "config.py"]
    read = {name for path in sources for name in re.findall(r"\.(\w+)", path.read_text())}
    assert [name for name in FIELDS if name not in read and name not in SIZES] == []


@pytest.mark.parametrize(
    "settings",
    [
        *map(changed, FIELDS),
        # A leading dash looks like an option.
        Settings(data_dir=Path("-ib0"), run_id="-x"),
        Settings(learning_rate=1e-300, warmup_epochs=1e6, momentum=1 / 3, batch_size=10**9, seed=MAX_SEED),
        Settings(data_dir=Path("a =b/./.\u00e9 ")),
    ],
)
def test_a_setting_is_valid_and_survives_the_command_line(settings):
    check(settings)
    assert as_arguments(settings)
    assert parsed(as_arguments(settings)) == settings


def test_a_record_has_plain_values_from_which_the_settings_are_read_without_those_that_exist_no_longer():
    values = as_json(Settings(**CHANGED))
    assert values == {name: str(value) if isinstance(value, Path) else value for name, value in CHANGED.items()}
    assert TypeAdapter(Settings).validate_json(json.dumps(values | {"of_an_older_version": 1})) == Settings(**CHANGED)


INVALID = [
    ("seed", 2**32, "--seed is 4294967296; it must be at least 0 and at most 4294967295"),
    ("batch_size", 0, "--batch-size is 0; it must be at least 1 and at most 1000000000"),
    ("learning_rate", float("inf"), "--learning-rate is inf; it must be above 0 and at most 1000000000"),
    ("momentum", 1.0, "--momentum is 1; it must be at least 0 and below 1"),
    ("trace", "everything", "--trace is everything; it must be mpi or the path of a libmpitrace.so"),
    ("trace", __file__, f"--trace is {__file__}; it must be mpi or the path of a libmpitrace.so"),
    ("run_id", "..", "--run-id is '..'; use letters, digits, '_', '@', '-' and, not first, '.' and '+'"),
    ("epochs", 10**400, f"--epochs is 1{'0' * 58}…; it must be at least 1 and at most 1000000000"),
    ("machine", ".hidden", "--machine is '.hidden'; use letters, digits, '.', '_' and '-'"),
]


@pytest.mark.parametrize(("name", "value", "message"), INVALID)
def test_an_invalid_setting_is_refused_with_its_flag(name, value, message):
    invalid = dataclasses.replace(changed(name), **{name: value})
    assert refusal(check, invalid) == message
    assert refusal(workloads.resolve, invalid, 2) == message
    if name != "trace":
        assert refusal(parsed, [f"{flag(name)}={value}"]) == message


def test_a_rank_has_a_core_for_each_of_its_threads():
    assert refusal(check, Settings(threads=3, cores_per_rank=2)) == "--cores-per-rank is 2; it must be at least --threads, 3"
    check(Settings(threads=3, cores_per_rank=3))


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"workload": "resnet"}, ["'resnet'", *workloads.WORKLOADS]),
        ({"dataset": "pydoc"}, ["--dataset pydoc is not for cnn", "digits, mnist"]),
        ({"workload": "resnet50", "target": 0.5}, ["--target is not for resnet50", "throughput only"]),
        ({"scaling": "strong"}, ["batch of 16", "--batch-size a multiple of 3"]),
        # Three micro-batches of 16 samples do divide by 3, and one of them does not.
        ({"scaling": "strong", "accumulate": 3}, ["batch of 16", "--batch-size a multiple of 3"]),
    ],
)
def test_what_is_not_for_a_workload_is_refused(values, parts):
    text = refusal(workloads.resolve, Settings(**values), 3)
    assert [part for part in parts if part not in text] == []


@pytest.mark.parametrize("argument", ["--wrong-flag=1", "extra", "--batch-size=many", "--optimizer=lion", "--seed"])
def test_invalid_arguments_give_a_one_line_error(argument):
    text = refusal(parsed, [argument])
    assert argument.partition("=")[0] in text
    assert f"{PROGRAM} --help" in text


@pytest.mark.parametrize(
    ("requested", "num_ranks", "expected"),
    [
        (Settings(optimizer="adam"), 2, ("digits", 16, 20, 0.94, "adam", 0.001)),
        (Settings(batch_size=5, epochs=1, target=0.5, learning_rate=3.0), 4, ("digits", 5, 1, 0.5, "sgd", 3.0)),
        (Settings(dataset="mnist", optimizer="adam", learning_rate=0.5), 1, ("mnist", 16, 20, 0.94, "adam", 0.5)),
        (Settings(workload="transformer", dataset="pydoc", optimizer="sgd"), 1, ("pydoc", 8, 20, 0.46, "sgd", 0.05)),
        (Settings(workload="resnet50"), 3, ("random", 32, 1, None, "sgd", 0.0125)),
    ],
)
def test_defaults_come_from_the_workload(requested, num_ranks, expected):
    names = ("dataset", "batch_size", "epochs", "target", "optimizer", "learning_rate")
    resolved = workloads.resolve(requested, num_ranks)
    assert tuple(getattr(resolved, name) for name in names) == expected
    assert dataclasses.replace(resolved, **{name: getattr(requested, name) for name in names}) == requested


def digest(data="data", **values):
    return workloads.digest(Settings(**values), data)


# Of a user's model the digest has the source (tests/common/model/test_user_file.py), and of sizes the model
# (tests/common/test_workloads.py).
@pytest.mark.parametrize("name", [name for name in FIELDS if name not in ("model", "model_args", *SIZES)])
def test_the_digest_differs_for_training_settings_only(name, monkeypatch):
    monkeypatch.setitem(workloads.WORKLOADS, "other", workloads.WORKLOADS["cnn"])
    assert (digest() == workloads.digest(changed(name), "data")) == (name not in TRAINING_SETTINGS)


def test_the_digest_is_that_of_the_committed_records_and_stays_so_with_a_new_setting_at_its_default(monkeypatch):
    records, _ = collect(list((ROOT / "results/reference/two-cores").glob("*-single-n1-r0.json")))
    committed = {(record.workload, record.scaling, record.workload_digest): record.settings for record in records}
    assert len(committed) == 4
    data_digests = {expected: datasets.loader(settings)().digest for (*_, expected), settings in committed.items()}
    for (*_, expected), settings in committed.items():
        assert workloads.digest(settings, data_digests[expected]) == expected
    with_new = dataclasses.make_dataclass("WithNew", [("new", int, 3)], bases=(Settings,), frozen=True)
    monkeypatch.setattr(workloads, "Settings", with_new)
    monkeypatch.setattr(workloads, "TRAINING_SETTINGS", (*TRAINING_SETTINGS, "new"))
    for (*_, expected), settings in committed.items():
        digests = [workloads.digest(with_new(**vars(settings), new=new), data_digests[expected]) for new in (3, 4)]
        assert (digests[0] == expected) is (digests[1] != expected) is True


def test_the_digest_differs_for_other_data_and_another_start_of_a_parameter(monkeypatch):
    parameters = parameters_of(Cnn())
    changes = ({"dense3.bias": constant((10,))}, {"dense2.bias": constant((10,), 0.5)}, {"dense2.weight": normal((10, 128), 1.0)})
    digests = [digest(), digest("other data")]
    for change in changes:
        monkeypatch.setattr(description, "parameters_of", lambda _, changed=parameters | change: changed)
        digests.append(digest())
    assert len(set(digests)) == 2 + len(changes)


def test_the_digest_differs_for_sizes_of_the_model_that_no_parameter_shows_and_for_other_conventions(monkeypatch):
    digests, preset = {digest(workload=name) for name in workloads.WORKLOADS}, workloads.WORKLOADS["resnet50"]
    changed_model = dataclasses.replace(preset.model, pixel_means=(0.5, 0.5, 0.5))
    monkeypatch.setitem(workloads.WORKLOADS, "resnet50", preset._replace(model=changed_model))
    digests.add(digest(workload="resnet50"))
    monkeypatch.setattr(conventions, "VERSION", 2)
    assert len({digest(), *digests}) == len(workloads.WORKLOADS) + 2


@pytest.mark.parametrize(
    ("workload", "defaults"),
    [
        ("cnn", {"dataset": "digits", "batch_size": 16, "target": 0.94, "optimizer": "sgd", "learning_rate": 0.004}),
        ("transformer", {"layers": 2, "width": 64, "heads": 4, "context": 64}),
    ],
)
def test_the_digest_is_the_same_for_explicit_defaults(workload, defaults):
    assert digest(workload=workload, **defaults) == digest(workload=workload)


def test_epochs_change_the_digest_only_if_the_schedule_depends_on_them():
    assert digest(epochs=4) == digest(epochs=16)
    assert digest(schedule="cosine", epochs=4) != digest(schedule="cosine", epochs=16)

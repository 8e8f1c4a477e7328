"""Variants of a backend: from BACKEND@VALUE to file and setting, and back."""

import dataclasses

import pytest

from common import backends
from common.command_line import flag, parse
from common.config import Settings
from common.cost import parallelism
from common.declarations import BASELINE
from launch import matrix
from launch.launchers import commands
from launch.run import available, runner
from launch.run.plan import plan
from tests.support.mistakes import refused

MPICH = commands.Launcher("mpich", "mpiexec")


def names_with(field):
    """The names of the backends with a field in their declaration."""
    return [name for name, declaration in backends.declared().items() if getattr(declaration, field)]


# The backends in messages about a setting that selects variants.
OVER_ANOTHER = ", ".join(name for name, declaration in backends.declared().items() if "transport" in declaration.variants)


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("deepspeed_zero", "zero_stage", 1), ("deepspeed_zero@0", "zero_stage", 0), ("deepspeed_zero@3", "zero_stage", 3),
        ("ddp@mpi", "transport", "mpi"), ("horovod_keras@gloo", "transport", "gloo"), ("single", "transport", None),
    ],
)  # fmt: skip
def test_a_name_maps_to_a_file_and_a_setting_and_back(name, setting, value):
    settings = backends.settings_of(name, Settings(seed=7))
    assert settings == Settings(seed=7, **{setting: value})
    assert backends.file_of(name) == name.partition("@")[0]
    assert backends.name_of(backends.file_of(name), settings) == name


def test_a_matrix_has_the_backends_that_say_so_or_all_without_variants_and_the_baseline_first():
    assert backends.chosen(None) == names_with("by_default")
    assert backends.chosen(None)[:2] == [BASELINE, "ddp"]
    assert backends.chosen("all") == list(backends.declared())
    assert {"fsdp", "gradient_averaging", "zero_redundancy"} < set(backends.chosen("all"))
    assert backends.chosen("deepspeed_zero, deepspeed_zero@3") == ["deepspeed_zero", "deepspeed_zero@3"]


def test_a_variant_is_a_value_of_its_setting_other_than_the_default():
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    for name, backend in backends.declared().items():
        for setting, values in backend.variants.items():
            for value in values:
                assert parse(Settings, "", "", [flag(setting), str(value)]) is not None, name
                assert value != fields[setting].default, name
        assert backend.transport not in backend.variants.get("transport", ())
        assert backend.transport is None or fields["transport"].default is None


@pytest.mark.parametrize(
    ("name", "needs_mpi"),
    [
        ("single", False), ("ddp", False), ("ddp@mpi", True), ("horovod_torch", True), ("horovod_torch@gloo", True),
        ("deepspeed_zero@3", False),
    ],
)  # fmt: skip
def test_a_variant_may_need_mpi_where_its_backend_does_not(name, needs_mpi):
    assert backends.needs_mpi(name) is needs_mpi
    problem = available.mpi_problem(name, "torchrun")
    assert problem == ("it needs MPI, which torchrun does not provide; use an MPI launcher" if needs_mpi else None)


@pytest.mark.parametrize(
    ("backend", "settings", "message"),
    [
        ("ddp", {"zero_stage": 3}, "--zero-stage is for deepspeed_zero, not for ddp; leave it out"),
        ("fsdp", {"share_gpu": True}, f"not for fsdp; leave it out, or choose from: {', '.join(names_with('can_share_gpu'))}"),
        ("ddp", {"transport": "gloo"}, "ddp@gloo is ddp itself; leave gloo out"),
        ("single", {"transport": "mpi"}, f"--transport is for {OVER_ANOTHER}, not for single; leave it out"),
        ("deepspeed_zero", {"transport": "gloo"}, f"--transport is for {OVER_ANOTHER}, not for deepspeed_zero"),
        ("ddp", {"transport": "mpi", "reduction": "fp16"}, "ddp takes one of --reduction and --transport; leave the others out"),
        ("ddp", {"reduction": "adasum"}, "there is no ddp@adasum; choose from: ddp@mpi, ddp@fp16, "),
        ("horovod_tf", {"reduction": "fp16"}, "ddp, fsdp, horovod_torch, not for horovod_tf"),
    ],
)
def test_a_setting_of_another_backend_is_refused(backend, settings, message):
    with refused(message):
        backends.name_of(backend, Settings(**settings))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("single@3", "single has no variants; write it without @3"),
        ("ddp@gloo", "ddp@gloo is ddp itself; leave gloo out"),
        ("deepspeed_zero@1", "deepspeed_zero@1 is deepspeed_zero itself; leave 1 out"),
        ("horovod_torch@nccl", "choose from: horovod_torch@gloo, horovod_torch@fp16, or horovod_torch"),
        ("deepspeed_zero@4", "there is no deepspeed_zero@4; choose from: deepspeed_zero@0, "),
        ("deepspeed_zero@", "there is no deepspeed_zero@; choose from"),
        ("deepspeed@3", "there is no backend 'deepspeed@3'; choose from: single, "),
    ],
)
def test_a_name_that_is_not_there_is_refused(name, message):
    with refused(message):
        backends.chosen(f"ddp,{name}")


@pytest.mark.parametrize(
    ("name", "settings", "num_ranks", "message"),
    [
        ("pipeline_ddp", {"scaling": "strong", "batch_size": 4}, 4, "4 micro-batches do not divide the batch of 2 samples"),
        ("pipeline_ddp", {"stages": 0}, 2, "--stages is 0"),
        ("pipeline", {"workload": "transformer-gpt2"}, 2, "pipeline does not train transformer-gpt2"),
    ],
)
def test_what_a_variant_cannot_train_is_refused(name, settings, num_ranks, message):
    with refused(message):
        parallelism.degree(name, Settings(**settings), num_ranks)


@pytest.mark.parametrize(
    ("setting", "variants"),
    [("zero_stage", "deepspeed_zero@0, deepspeed_zero@2, deepspeed_zero@3"), ("sharding", "fsdp@keep")],
)
def test_a_matrix_refuses_a_setting_that_selects_variants_and_names_these(setting, variants):
    with refused(f"{flag(setting)} is for a single run; here write one of {variants} in --backends"):
        parse(matrix.Matrix, "", "", [f"{flag(setting)}=any"], matrix.not_for_a_matrix())


def test_a_matrix_is_refused_at_a_size_that_one_of_its_variants_does_not_take():
    with refused("multiple of 2 ranks (--stages), and 1 is"):
        available.check(plan(["ddp", "pipeline_ddp"], ["cnn"], [1], 1, None, Settings()), MPICH)


def test_a_job_of_a_variant_starts_its_file_with_its_setting():
    jobs = plan(["deepspeed_zero", "deepspeed_zero@3"], ["cnn"], [2], 1, None, Settings())
    assert [job.settings.run_id for job in jobs] == ["cnn-deepspeed_zero-n2-r0", "cnn-deepspeed_zero@3-n2-r0"]
    first, second = (" ".join(runner.start_of(job, MPICH).argv()) for job in jobs)
    assert "-m frameworks.deepspeed_zero " in first
    assert "--zero-stage" not in first
    assert "-m frameworks.deepspeed_zero " in second
    assert "--zero-stage 3" in second

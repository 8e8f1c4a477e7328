"""Variants of a backend: from BACKEND@VALUE to file and setting, and back."""

import dataclasses

import pytest

from common import backends
from common.command_line import flag, parse
from common.config import Settings
from common.cost import parallelism
from common.errors import UserError
from launch import matrix
from launch.launchers import commands
from launch.run import available, runner
from launch.run.plan import plan
from tests.support.backends import ON_PYTORCH

MPICH = commands.Launcher("mpich", "mpiexec")


def names_with(field):
    """The names of the backends with a field in their declaration."""
    return [name for name, one in backends.declared().items() if getattr(one, field)]


def written(setting, value):
    """What a message advises in place of a setting."""
    return f"write {' or '.join(backends.with_variant(setting, value))} in --backends"


# The backends in messages about a setting that selects variants.
OVER_ANOTHER = ", ".join(name for name, one in backends.declared().items() if "transport" in one.variants)


@pytest.mark.parametrize(
    ("name", "file", "stage"),
    [("deepspeed_zero", "deepspeed_zero", 1), ("deepspeed_zero@0", "deepspeed_zero", 0), ("deepspeed_zero@3", "deepspeed_zero", 3)],
)
def test_a_name_maps_to_a_file_and_a_setting_and_back(name, file, stage):
    assert backends.file_of(name) == file
    settings = backends.settings_of(name, Settings(seed=7))
    assert (settings.zero_stage, settings.seed) == (stage, 7)
    assert backends.name_of(file, settings) == name


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("ddp", True), ("ddp@mpi", True), ("ddp@fp16", False), ("ddp@bf16", False), ("ddp@powersgd", False), ("horovod_torch", True),
        ("horovod_torch@gloo", True), ("horovod_torch@fp16", False), ("horovod_torch@adasum", False), ("weight_averaging@2", False),
        ("fsdp@hsdp", True), ("fsdp@bf16", False),
    ],
)  # fmt: skip
def test_a_variant_may_be_approximate_where_its_backend_is_exact(name, exact):
    assert backends.is_exact(name) is exact


@pytest.mark.parametrize(("name", "file", "transport"), [("ddp@mpi", "ddp", "mpi"), ("horovod_keras@gloo", "horovod_keras", "gloo")])
def test_backends_share_a_setting_that_selects_variants(name, file, transport):
    settings = backends.settings_of(name, Settings(seed=7))
    assert (settings.transport, settings.seed) == (transport, 7)
    assert backends.name_of(file, settings) == name


def test_a_backend_without_variants_keeps_its_name_and_settings():
    assert backends.name_of("single", Settings()) == backends.file_of("single") == "single"
    assert backends.settings_of("single", Settings(seed=7)) == Settings(seed=7)


def test_by_default_a_matrix_has_the_backends_that_say_so_without_variants_and_the_baseline_first():
    assert backends.chosen(None) == names_with("by_default")
    assert backends.chosen(None)[:2] == [backends.BASELINE, "ddp"]


def test_all_are_every_backend_without_variants():
    assert backends.chosen("all") == list(backends.declared())
    assert {"fsdp", "gradient_averaging", "zero_redundancy"} < set(backends.chosen("all"))


def test_a_variant_is_a_value_of_its_setting_other_than_the_default():
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    for name, backend in backends.declared().items():
        for setting, values in backend.variants.items():
            for value in values:
                assert parse(Settings, "", "", [flag(setting), str(value)]) is not None, name
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
    ("call", "message"),
    [
        (lambda: backends.name_of("ddp", Settings(zero_stage=3)), "--zero-stage is for deepspeed_zero, not for ddp; leave it out"),
        (
            lambda: backends.name_of("fsdp", Settings(share_gpu=True)),
            f"--share-gpu is not for fsdp; leave it out, or choose from: {', '.join(names_with('can_share_gpu'))}",
        ),
        (lambda: backends.name_of("horovod_tf", Settings(compile=True)), "--compile is not for horovod_tf; leave it out"),
        (
            lambda: backends.name_of("deepspeed_zero", Settings(compile=True, zero_stage=3)),
            "use deepspeed_zero@0, deepspeed_zero@1, deepspeed_zero@2",
        ),
        (lambda: backends.settings_of("single@3", Settings()), "single has no variants; write it without @3"),
        (lambda: backends.settings_of("ddp@gloo", Settings()), "ddp@gloo is ddp itself; leave gloo out"),
        (lambda: backends.name_of("ddp", Settings(transport="gloo")), "ddp@gloo is ddp itself; leave gloo out"),
        (
            lambda: backends.settings_of("horovod_torch@nccl", Settings()),
            "there is no horovod_torch@nccl; choose from: horovod_torch@gloo, horovod_torch@fp16, horovod_torch@adasum, or horovod_torch",
        ),
        (
            lambda: backends.name_of("single", Settings(transport="mpi")),
            f"--transport is for {OVER_ANOTHER}, not for single; leave it out",
        ),
        (
            lambda: backends.name_of("deepspeed_zero", Settings(transport="gloo")),
            f"--transport is for {OVER_ANOTHER}, not for deepspeed_zero",
        ),
        (lambda: backends.settings_of("deepspeed_zero@4", Settings()), "there is no deepspeed_zero@4; choose from: deepspeed_zero@0, "),
        (lambda: backends.settings_of("deepspeed_zero@", Settings()), "there is no deepspeed_zero@; choose from"),
        (lambda: backends.chosen("deepspeed@3"), "there is no backend 'deepspeed@3'; choose from: single, "),
        (
            lambda: parallelism.degree("fsdp@hsdp", Settings(), 3),
            "fsdp@hsdp takes a multiple of 2 ranks, and 3 is none; choose",
        ),
        (
            lambda: parallelism.degree("horovod_torch@adasum", Settings(), 6),
            "horovod_torch@adasum takes a power of 2 as the number of ranks, and 6 is none; choose",
        ),
        (
            lambda: backends.name_of("ddp", Settings(transport="mpi", reduction="fp16")),
            "ddp takes one of --reduction and --transport; leave the others out",
        ),
        (
            lambda: backends.name_of("ddp", Settings(reduction="adasum")),
            "there is no ddp@adasum; choose from: ddp@mpi, ddp@fp16, ",
        ),
        (lambda: backends.name_of("horovod_tf", Settings(reduction="fp16")), "ddp, fsdp, horovod_torch, not for horovod_tf"),
        (
            lambda: matrix.settings_of(matrix.Matrix(run=Settings(reduction="fp16"))),
            written("reduction", "fp16"),
        ),
        (
            lambda: matrix.check(plan(["ddp", "fsdp@hsdp"], ["cnn"], [1], 1, None, Settings(), "stamp"), MPICH),
            "multiple of 2 ranks, and 1 is",
        ),
        (
            lambda: parallelism.degree("pipeline@interleaved", Settings(pipeline_schedule="interleaved"), 4),
            "pipeline@interleaved cuts cnn into at most 4 stages, and 4 ranks have 8; choose fewer",
        ),
        (lambda: parallelism.degree("pipeline", Settings(microbatches=3), 2), "3 micro-batches do not divide the batch of 16 samples"),
        (
            lambda: parallelism.degree("pipeline_ddp", Settings(scaling="strong", batch_size=4), 4),
            "4 micro-batches do not divide the batch of 2 samples",
        ),
        (lambda: parallelism.degree("pipeline_ddp", Settings(), 3), "a multiple of 2 ranks (--stages), and 3 is none"),
        (lambda: parallelism.degree("pipeline_ddp", Settings(stages=0), 2), "--stages is 0"),
        (lambda: parallelism.degree("pipeline", Settings(microbatches=2), 4), "as many micro-batches as its 4 stages, and 2 are fewer"),
        (lambda: parallelism.degree("pipeline", Settings(workload="transformer-alcf"), 2), "pipeline does not train transformer-alcf"),
        *[
            (lambda name=name: parallelism.degree(name, Settings(workload="transformer-gpt2"), 2), f"{name} does not train transformer-g")
            for name in ("pipeline", "pipeline_ddp", "tensor_parallel")
        ],
        (lambda: backends.chosen("ddp,single@1"), "single has no variants"),
        (lambda: matrix.settings_of(matrix.Matrix(run=Settings(zero_stage=2))), "write deepspeed_zero@2 in --backends"),
        (
            lambda: matrix.settings_of(matrix.Matrix(run=Settings(transport="mpi"))),
            written("transport", "mpi"),
        ),
        (
            lambda: matrix.settings_of(matrix.Matrix(run=Settings(transport="gloo"))),
            written("transport", "gloo"),
        ),
    ],
)
def test_invalid_variants_give_a_one_line_error(call, message):
    with pytest.raises(UserError) as raised:
        call()
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_only_backends_on_pytorch_compile_and_their_names_stay():
    able = names_with("can_compile")
    assert set(able) < set(ON_PYTORCH)
    assert [backends.name_of(backend, Settings(compile=True)) for backend in able] == able


@pytest.mark.parametrize(
    ("name", "num_ranks"),
    [
        ("fsdp", 3),
        ("fsdp@hsdp", 4),
        ("ddp", 1),
        ("horovod_torch", 3),
        ("horovod_torch@adasum", 4),
        ("horovod_torch@adasum", 1),
        ("a_file_of_a_test", 3),
    ],
)
def test_most_backends_take_any_number_of_ranks(name, num_ranks):
    assert parallelism.degree(name, Settings(), num_ranks) == num_ranks


def test_the_default_variant_has_no_name_of_its_own():
    assert backends.chosen("deepspeed_zero@1, deepspeed_zero@3") == ["deepspeed_zero", "deepspeed_zero@3"]


def test_a_job_of_a_variant_starts_its_file_with_its_setting():
    jobs = plan(["deepspeed_zero", "deepspeed_zero@3"], ["cnn"], [2], 1, None, Settings(), "stamp")
    assert [job.settings.run_id for job in jobs] == ["stamp-cnn-deepspeed_zero-n2-r0", "stamp-cnn-deepspeed_zero@3-n2-r0"]
    first, second = (" ".join(runner.start_of(job, MPICH).argv()) for job in jobs)
    assert "-m frameworks.deepspeed_zero " in first
    assert "--zero-stage" not in first
    assert "-m frameworks.deepspeed_zero " in second
    assert "--zero-stage 3" in second

"""Whether to leave Horovod: what is compared with what, in which words, and what is not measured."""

import pytest

from launch.report.questions.leaving_horovod import STAYING
from tests.launch.report.questions.test_difference import FOUR, records_of
from tests.support.answers import answered

AT = "cnn, weak scaling, 2 ranks, leaving Horovod for"
CODE = "What changes in the code: ddp: wrap in DistributedDataParallel; in place of horovod_torch: wrap the optimizer."


def sentences(made_records):
    return next((section.sentences for section in answered(made_records).sections if section.key == "leaving"), [])


def test_each_transport_is_compared_for_itself_with_memory_startup_and_code():
    of_horovod = {cell: factor for cell, factor in FOUR.items() if cell[0].startswith("horovod")}
    records = records_of(of_horovod, peak_memory_bytes=200 * 2**20, launch_seconds=4.25)
    assert sentences(records + records_of({cell: FOUR[cell] for cell in FOUR.keys() - of_horovod})) == [
        f"{AT} ddp: 0.83 times as long per epoch (0.83 to 0.83) over mpi, 0.77 times as long per epoch (0.77 to 0.77) over gloo, "
        "memory per rank 300 MiB for 200, start-up 3.2 s for 7.2.",
        CODE,
        STAYING,
    ]


@pytest.mark.parametrize(
    ("ddp", "words"),
    [
        (1.2, "1.20 times as long per epoch (1.20 to 1.20)"),
        ((0.9, 1.1, 1.0, 0.9, 1.1, 1.0), "no difference shown (0.91 to 1.10)"),
        ((1.01, 0.99, 1.0, 1.01, 0.99, 1.0), "no difference beyond 5 % (0.99 to 1.01)"),
    ],
)
def test_the_words_are_those_of_the_verdicts(ddp, words):
    first, *_ = sentences(records_of({("ddp@mpi", "mpi"): ddp, ("horovod_torch", "mpi"): 1.0}))
    assert first.startswith(f"{AT} ddp: {words} over mpi, ")


def test_without_a_transport_in_common_both_are_named():
    first, *_ = sentences(records_of({("ddp", "gloo"): 1.1, ("horovod_torch", "mpi"): 1.0}))
    assert first.startswith(f"{AT} ddp: 1.10 times as long per epoch (1.10 to 1.10) over gloo (Horovod over mpi), ")


def test_with_one_in_common_that_alone_is_compared():
    first, *_ = sentences(records_of({("ddp@mpi", "mpi"): 1.1, ("ddp", "gloo"): 1.3, ("horovod_torch", "mpi"): 1.0}))
    assert first.startswith(f"{AT} ddp: 1.10 times as long per epoch (1.10 to 1.10) over mpi, memory")


def test_too_few_repeats_have_no_verdict():
    first, *_ = sentences(records_of({("ddp@mpi", "mpi"): 1.0, ("horovod_torch", "mpi"): 1.1}, num_repeats=1))
    assert first.startswith(f"{AT} ddp: 0.91 times as long per epoch (one run each) over mpi, ")
    assert first.endswith("; a verdict takes 6 repeats.")


def not_measured(framework, backends):
    return f"{framework} without Horovod: not measured; measure it with --backends {backends}."


def test_a_framework_is_left_for_its_own_backends_which_are_named_where_they_did_not_run_and_keras_has_none():
    records = records_of({**FOUR, ("horovod_tf", "mpi"): 0.5, ("horovod_keras", "mpi"): 0.6})
    assert sentences(records)[1:] == [not_measured("TensorFlow", "horovod_tf,tf_mirrored"), CODE, STAYING]


def test_models_on_several_ranks_approximate_backends_plain_training_and_one_rank_are_no_alternative():
    horovod = {("horovod_torch", "mpi"): 1.0}
    none = [not_measured("PyTorch", "horovod_torch,ddp,deepspeed_zero"), STAYING]
    for backend in ("pipeline", "ddp@fp16"):
        assert sentences(records_of(horovod) + records_of({(backend, "gloo"): 1.0}, exact="@" not in backend)) == none
    assert sentences(records_of(horovod) + records_of({("single", None): 1.0}, num_ranks=1)) == none
    assert sentences(records_of(FOUR, num_ranks=1)) == []


def test_without_horovod_there_is_no_question():
    assert sentences(records_of({("ddp", "gloo"): 1.0, ("ddp@mpi", "mpi"): 1.1})) == []


def test_tensorflow_is_left_for_its_own_strategy():
    first, code, _ = sentences(records_of({("tf_mirrored", "grpc"): 1.1, ("horovod_tf@gloo", "gloo"): 1.2, ("horovod_tf", "mpi"): 1.0}))
    assert first.startswith(f"{AT} tf_mirrored: 1.10 times as long per epoch (1.10 to 1.10) over grpc (Horovod over mpi), ")
    strategy = "build the model in the strategy's scope, average the gradients in its run"
    assert code == f"What changes in the code: tf_mirrored: {strategy}; in place of horovod_tf: wrap the gradient tape."

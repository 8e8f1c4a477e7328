"""Whether to leave Horovod: what is compared with what, in which words, and what is not measured."""

import pytest

from common import backends
from common.declarations import ALONE, declared
from launch.report.questions.leaving_horovod import LIBRARY, STAYING
from tests.launch.report.questions.test_difference import FOUR, records_of
from tests.support.answers import answered

AT = "cnn, weak scaling, 2 ranks, leaving Horovod for"
CODE = "What changes in the code: ddp: wrap in DistributedDataParallel; in place of horovod_torch: wrap the optimizer."


def sentences(made_records):
    return next((section.sentences for section in answered(made_records).sections if section.key == "leaving"), [])


def test_each_transport_is_compared_for_itself_with_memory_startup_and_code():
    assert sentences(records_of(FOUR)) == [
        f"{AT} ddp: 0.83 times as long per epoch (0.83 to 0.83) over mpi, 0.77 times as long per epoch (0.77 to 0.77) over gloo, "
        "memory per rank 300 MiB for 300, start-up 3.2 s for 3.2.",
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


def test_memory_and_startup_are_those_of_both_sides():
    horovod = records_of({("horovod_torch", "mpi"): 1.0}, peak_memory_bytes=200 * 2**20, launch_seconds=4.25)
    first, *_ = sentences(horovod + records_of({("ddp@mpi", "mpi"): 1.1}))
    assert first.endswith(" over mpi, memory per rank 300 MiB for 200, start-up 3.2 s for 7.2.")


def test_without_a_transport_in_common_both_are_named():
    first, *_ = sentences(records_of({("ddp", "gloo"): 1.1, ("horovod_torch", "mpi"): 1.0}))
    assert first.startswith(f"{AT} ddp: 1.10 times as long per epoch (1.10 to 1.10) over gloo (Horovod over mpi), ")


def test_too_few_repeats_have_no_verdict():
    first, *_ = sentences(records_of({("ddp@mpi", "mpi"): 1.0, ("horovod_torch", "mpi"): 1.1}, num_repeats=1))
    assert first.startswith(f"{AT} ddp: 0.91 times as long per epoch (one run each) over mpi, ")
    assert first.endswith("; a verdict takes 6 repeats.")


def test_a_framework_is_left_for_its_own_backends_alone():
    records = records_of({**FOUR, ("horovod_tf", "mpi"): 0.5, ("horovod_keras", "mpi"): 0.6})
    assert sentences(records)[1:] == ["Keras's and TensorFlow's own strategy: not measured.", CODE, STAYING]


def test_models_on_several_ranks_approximate_backends_plain_training_and_one_rank_are_no_alternative():
    horovod = {("horovod_torch", "mpi"): 1.0}
    not_measured = ["PyTorch's own strategy: not measured.", STAYING]
    for backend in ("pipeline", "ddp@fp16"):
        assert sentences(records_of(horovod) + records_of({(backend, "gloo"): 1.0}, exact="@" not in backend)) == not_measured
    assert sentences(records_of(horovod) + records_of({("single", None): 1.0}, num_ranks=1)) == not_measured
    assert sentences(records_of(FOUR, num_ranks=1)) == []


def test_without_horovod_there_is_no_question():
    assert sentences(records_of({("ddp", "gloo"): 1.0, ("ddp@mpi", "mpi"): 1.1})) == []


def test_tensorflow_is_answered_for_by_its_own_strategy_and_keras_is_not():
    records = records_of({("tf_mirrored", "grpc"): 1.1, ("horovod_tf@gloo", "gloo"): 1.2, ("horovod_tf", "mpi"): 1.0})
    first, code, _ = sentences(records)
    assert first.startswith(f"{AT} tf_mirrored: 1.10 times as long per epoch (1.10 to 1.10) over grpc (Horovod over mpi), ")
    strategy = "build the model in the strategy's scope, average the gradients in its run"
    assert code == f"What changes in the code: tf_mirrored: {strategy}; in place of horovod_tf: wrap the gradient tape."
    of_keras = records_of({("horovod_keras", "mpi"): 1.0})
    assert sentences(records + of_keras)[1:] == ["Keras's own strategy: not measured.", code, STAYING]


def test_the_default_matrix_measures_an_alternative_in_every_framework_but_keras():
    by_library = {True: set(), False: set()}
    for name in backends.chosen(None):
        if declared()[name].library != ALONE:
            by_library[declared()[name].library == LIBRARY].add(declared()[name].framework)
    assert by_library[True] - by_library[False] == {"Keras"}

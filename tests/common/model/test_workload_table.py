"""Sizes of Transformers by settings: what they change, and where they are refused."""

import math

import pytest

from common import workloads
from common.config import Settings
from common.errors import UserError
from common.model.decoder import Decoder
from common.model.description import parameters_of
from common.model.encoder_decoder import EncoderDecoder

SIZES = {"layers": 3, "width": 96, "heads": 4, "context": 32}


def workload(name="transformer", **sizes):
    return workloads.workload_of(Settings(workload=name, **sizes))


def num_parameters(model):
    return sum(math.prod(parameter.shape) for parameter in parameters_of(model).values())


def test_the_model_has_the_sizes_and_all_else_of_the_workload():
    assert workload(**SIZES).model == Decoder(96, 4, 3, 32)
    assert workload(**SIZES)._replace(model=workload().model) == workload()
    assert workload("transformer-gpt2", layers=2).model == Decoder(768, 12, 2, 1024, tied=True)


def test_each_size_counts():
    layer = num_parameters(workload(**SIZES | {"layers": 4}).model) - num_parameters(workload(**SIZES).model)
    # Four matrices of the attention, three of SwiGLU with 256 for 8/3 of 96, and two norms.
    assert layer == 4 * 96**2 + 3 * 96 * 256 + 2 * 96
    assert workload(**SIZES | {"context": 64}).model.training_flops() > 2 * workload(**SIZES).model.training_flops()


def test_lengths_and_the_width_inside_of_the_encoder_and_decoder_follow():
    model = workload("transformer-alcf", width=128, heads=4, layers=2, source_length=5, target_length=7).model
    assert model == EncoderDecoder(128, 4, 2, 512, 5, 7)
    assert (model.input_shape, model.target_shape) == ((12, 128), (128, 7))
    assert num_parameters(workload("transformer-alcf").model) == num_parameters(workload("transformer-alcf", target_length=9).model)


@pytest.mark.parametrize("size", SIZES)
def test_the_digest_of_the_workload_has_each_size(size):
    changed = {name: value for name, value in SIZES.items() if name != size}
    digests = {workloads.digest(Settings(workload="transformer", **sizes), "data") for sizes in (SIZES, changed)}
    assert len(digests) == 1 + (size != "heads")


def test_sizes_of_the_workload_itself_leave_its_digest():
    of_workload = Settings(workload="transformer", layers=2, width=64, heads=4, context=64)
    assert workloads.digest(of_workload, "data") == workloads.digest(Settings(workload="transformer"), "data")


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("cnn", {"layers": 2}, "--layers is not for cnn, whose model has no such size"),
        ("resnet50", {"width": 32}, "--width is not for resnet50,"),
        ("transformer", {"source_length": 2}, "--source-length is not for transformer,"),
        ("transformer-alcf", {"context": 2}, "--context is not for transformer-alcf,"),
        ("transformer", {"heads": 3}, "--width 64 is not an even width for each of 3 heads"),
        ("transformer", {"heads": 64}, "--width 64 is not an even width for each of 64 heads"),
        ("transformer-alcf", {"heads": 3}, "--width 512 is not a whole width for each of 3 heads"),
        ("transformer", {"layers": 129}, "--layers is 129; it must be at least 1 and at most 128"),
        ("transformer", {"context": 0}, "--context is 0; it must be at least 1"),
    ],
)
def test_what_a_model_has_not_is_refused_in_one_line(name, sizes, message):
    with pytest.raises(UserError) as refused:
        workloads.resolve(Settings(workload=name, **sizes), 1)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_a_file_of_ones_own_has_its_sizes_in_its_arguments(tmp_path):
    with pytest.raises(UserError, match="--width is not for --model, whose sizes are --model-args; leave it out"):
        workload(model=str(tmp_path / "model.py"), width=64)

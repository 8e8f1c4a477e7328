"""A mistake on the command line of python -m launch.memory is told in one line, with exit status 2, before anything is printed."""

import pytest

from tests.support.mistakes import expect_refused

DECODER = ("--layers", "2", "--width", "128")
PRESET = ("--workload", "cnn")
MISTAKES = [
    ((), "no model is given; give --layers and --width, or a preset with --workload"),
    (("--params", "1e12", "--layers", "120"), "--params and --layers alone describe no model, --width missing; give --layers and --width"),
    (("--params", "1e12"), "--params alone describe no model, --layers and --width missing"),
    (("--width", "128"), "--layers missing"),
    ((*DECODER, "--heads", "3"), "--width 128 is not an even width for each of 3 heads; choose other --heads"),
    ((*DECODER, "--ranks", "0"), "--ranks is 0; it must be at least 1"),
    ((*DECODER, "--params", "many"), "invalid value 'many' for --params"),
    ((*DECODER, "--precision", "fp8"), "invalid choice 'fp8' for argument '--precision'. Expected one of ('fp32', 'tf32', "),
    ((*DECODER, "--fits", "80"), "--fits is '80'; give the memory of a rank, such as 80GB or 64GiB"),
    ((*DECODER, "--fits", "GB"), "--fits is 'GB'; give the memory of a rank"),
    *(((*DECODER, "--fits", text), f"--fits is '{text}'") for text in ("80 gb", "0GB", "80iB")),
    ((*DECODER, "--fits"), "--fits"),
    ((*DECODER, "--backends", "nope"), "there is no backend 'nope'; choose from: single"),
    ((*DECODER, "--way", ","), "--backends is ','; give backends such as ddp,fsdp,deepspeed_zero@3"),
    ((*DECODER, "--backends", "ddp@nope"), "there is no ddp@nope; choose from: ddp@mpi"),
    ((*DECODER, "--backends", "ddp+offload"), "ddp+offload is nothing that a library offers; choose from: deepspeed_zero+offload"),
    ((*DECODER, "--backends", "parameter_server"), "there is no forecast for parameter_server"),
    ((*DECODER, "--backends", "tensor_parallel", "--ranks", "3"), "divides the 2 heads of this model over its ranks, and 3 ranks do not"),
    ((*DECODER, "--backends", "fsdp@hsdp", "--ranks", "3"), "fsdp@hsdp takes a multiple of 2 ranks, and 3 is none"),
    ((*DECODER, "--backends", "pipeline", "--ranks", "8"), "pipeline cuts this model into at most 6 stages, and 8 ranks have 8"),
    ((*DECODER, "--backends", "pipeline", "--ranks", "2", "--microbatches", "3"), "3 micro-batches do not divide the batch of 8 samples"),
    ((*PRESET, "--backends", "tensor_parallel"), "tensor_parallel does not train this model"),
    ((*PRESET, "--width", "128"), "--width is for a model that is described by --layers and --width; leave it out, or --workload"),
    ((*PRESET, "--recompute"), "--recompute would save no memory of cnn"),
    (("--workload", "rnn"), "there is no workload 'rnn'; choose from: cnn"),
    ((*PRESET, "--picture", "/there/is/none.svg"), "--picture /there/is/none.svg cannot be written (No such file or directory)"),
    ((*PRESET, "--json", "/"), "--json / is a folder; give the name of a file"),
    ((*PRESET, "--frobnicate"), "unknown argument: --frobnicate"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[" ".join(arguments) for arguments, _ in MISTAKES])
def test_the_forecast_refuses(arguments, message):
    expect_refused(message, "launch.memory", *arguments)

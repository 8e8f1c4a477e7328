"""What python -m launch.memory prints and writes, and its mistakes, each in one line with exit status 2."""

import json
import xml.etree.ElementTree

import pytest

from common.cost import memory_forecast
from common.cost.memory_forecast import Training
from common.model.families import Decoder
from launch.memory import WAYS
from tests.support.forked import run_module
from tests.support.mistakes import expect_refused
from tests.support.running import BIN, completed

MODEL = ("--layers", "8", "--width", "256", "--heads", "8", "--context", "128", "--vocabulary", "1000")
TRAINING = Training(Decoder(256, 8, 8, 128, num_tokens=1000), 8, microbatches=8)


def test_the_table_has_every_way_and_its_bytes(tmp_path):
    path = tmp_path / "memory.json"
    status, output, error = run_module("launch.memory", *MODEL, "--json", path)
    assert (status, error) == (0, "")
    written = json.loads(path.read_text())
    assert [backend["name"] for backend in written["backends"]] == list(WAYS)
    assert written["left_out"] == []
    for backend in written["backends"]:
        forecast = memory_forecast.of(backend["name"], TRAINING, backend["num_ranks"])
        assert {part: backend[part] for part in forecast._fields} == forecast._asdict()
        # A backward pass in two parts keeps what it computes again.
        assert (backend["recomputed_activations"] < backend["activations"]) == (backend["name"] != "pipeline@zero_bubble")
        start = f"│ {backend['name']} "
        row = next(line for line in output.splitlines() if line.startswith(start) and f" {backend['num_ranks']} │" in line)
        assert f"{backend['peak'] / 1e9:.3f}" in row
    assert f"{memory_forecast.num_parameters(TRAINING):,} parameters, 8 layers of width 256; 8 samples per step, fp32, adam" in output
    assert "Peak on each rank of a pipeline (GB)" in output


@pytest.mark.parametrize(("arguments", "unit"), [(("--batch-size", "1"), "MB"), (("--params", "1e12"), "TB")])
def test_the_units_follow_the_largest_number(arguments, unit):
    _, output, _ = run_module("launch.memory", *MODEL, "--backends", "single", *arguments)
    assert f"Memory per rank ({unit})" in output


def test_what_cannot_divide_the_model_is_left_out_with_the_reason():
    status, output, _ = run_module("launch.memory", *MODEL, "--ranks", "3")
    assert status == 0
    assert "left out: tensor_parallel divides the 8 heads of this model over its ranks, and 3 ranks do not divide them" in output
    assert "left out: fsdp@hsdp takes a multiple of 2 ranks" in output
    _, output, _ = run_module("launch.memory", *MODEL, "--ranks", "3", "--ranks-per-node", "2")
    assert "left out: fsdp@hsdp takes the same number of ranks on each node" in output


@pytest.mark.parametrize("workload", ["cnn", "transformer-alcf", "resnet50"])
def test_every_kind_of_model_has_a_forecast(workload):
    status, output, error = run_module("launch.memory", "--workload", workload, "--fits", "16GB")
    assert (status, error) == (0, "")
    assert "deepspeed_zero@3" in output


def test_the_picture_has_a_bar_for_every_way(tmp_path):
    path = tmp_path / "memory.svg"
    # Not a fork: drawing starts threads.
    done = completed(BIN / "python", "-m", "launch.memory", *MODEL, "--backends", "single,ddp,fsdp", "--picture", path)
    assert (done.returncode, done.stderr) == (0, "")
    root = xml.etree.ElementTree.parse(path).getroot()
    texts = {element.text for element in root.iter()}
    assert {"single", "ddp", "fsdp", "parameters", "gradients", "optimizer state", "activations", "buffers"} <= texts
    labels = [element.get("aria-label") or "" for element in root.iter()]
    assert sum("part: " in label and "fsdp" in label for label in labels) == 5


def test_what_fits_is_told_last():
    single, fsdp = (memory_forecast.of(name, TRAINING, num_ranks).peak / 1e6 for name, num_ranks in (("single", 1), ("fsdp", 8)))
    assert fsdp < single
    for limit, headline in (((fsdp + single) / 2, "1 of 2 fit into {} per rank: fsdp"), (1, "0 of 2 fit into {} per rank")):
        _, output, _ = run_module("launch.memory", *MODEL, "--backends", "single,fsdp", "--fits", f"{limit:.0f}MB")
        assert output.splitlines()[-1] == headline.format(f"{limit:.0f} MB")


DECODER = ("--layers", "2", "--width", "128")
PRESET = ("--workload", "cnn")
MISTAKES = [
    ((), "no model is given; give --layers and --width, or a preset with --workload"),
    (("--params", "1e12", "--layers", "120"), "--params and --layers alone describe no model, --width missing; give --layers and --width"),
    (("--width", "128"), "--layers missing"),
    ((*DECODER, "--heads", "3"), "--width 128 is not an even width for each of 3 heads; choose other --heads"),
    ((*DECODER, "--ranks", "0"), "--ranks is 0; it must be at least 1"),
    ((*DECODER, "--fits", "80"), "--fits is '80'; give the memory of a rank, such as 80GB or 64GiB"),
    *(((*DECODER, "--fits", text), f"--fits is '{text}'") for text in ("80 gb", "0GB")),
    ((*DECODER, "--backends", "nope"), "there is no backend 'nope'; choose from: single"),
    ((*DECODER, "--way", ","), "--backends is ','; give backends such as ddp,fsdp,deepspeed_zero@3"),
    ((*DECODER, "--backends", "ddp@nope"), "there is no ddp@nope; choose from: ddp@mpi"),
    ((*DECODER, "--backends", "ddp+offload"), "ddp+offload is nothing that a library offers; choose from: deepspeed_zero+offload"),
    ((*DECODER, "--backends", "parameter_server"), "there is no forecast for parameter_server"),
    ((*DECODER, "--backends", "tensor_parallel", "--ranks", "3"), "divides the 2 heads of this model over its ranks, and 3 ranks do not"),
    ((*DECODER, "--backends", "pipeline", "--ranks", "8"), "pipeline cuts this model into at most 6 stages, and 8 ranks have 8"),
    ((*PRESET, "--backends", "tensor_parallel"), "tensor_parallel does not train this model"),
    ((*PRESET, "--width", "128"), "--width is for a model that is described by --layers and --width; leave it out, or --workload"),
    ((*PRESET, "--recompute"), "--recompute would save no memory of cnn"),
    (("--workload", "rnn"), "there is no workload 'rnn'; choose from: cnn"),
    ((*PRESET, "--picture", "/there/is/none.svg"), "--picture /there/is/none.svg cannot be written (No such file or directory)"),
    ((*PRESET, "--json", "/"), "--json / is a folder; give the name of a file"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[" ".join(arguments) for arguments, _ in MISTAKES])
def test_a_mistake_is_one_line(arguments, message):
    expect_refused(message, "launch.memory", *arguments)

"""What python -m launch.memory prints and writes."""

import json
import xml.etree.ElementTree

import pytest

from common.cost import memory_forecast
from common.cost.memory_forecast import Training
from common.model.families import Decoder
from launch.memory import WAYS
from tests.support.forked import run_module
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

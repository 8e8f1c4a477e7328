"""What python -m launch.memory prints, and its mistakes, each in one line with exit status 2."""

import importlib
import json

import pytest
import torch
import torch.distributed as dist

from common.errors import UserError
from frameworks.shared.pytorch import modules, steps
from launch import memory
from tests.support.forked import run_module
from tests.support.mistakes import expect_refused, refused
from tests.support.sound_models import SOUND
from tests.support.user_models import BEGINNING

SIZES = {"layers": 4, "heads": 8}
OPTIONS = ("--layers", "4", "--heads", "8")
# Bytes of the parameters in float32: embedding, head and norm; of each layer four matrices, three of SwiGLU, two norms.
OUTSIDE, LAYER = 4 * (2 * 256 * 64 + 64), 4 * (4 * 64**2 + 3 * 64 * 192 + 2 * 64)
P = OUTSIDE + 4 * LAYER


@pytest.fixture(scope="module")
def activations():
    """Imported for the first test that needs it: PyTorch's pipelines take seconds, and other processes only collect these tests."""
    return importlib.import_module("frameworks.shared.pytorch.activations")


@pytest.fixture(scope="module")
def forecasts():
    """The forecast of each backend for 8 ranks."""
    settings = memory.settings_from(memory.Memory(**SIZES))
    names = (*memory.BACKENDS, "deepspeed_zero@0", "fsdp@keep")
    names = [name for name in names if not memory.problem(name, settings, 8)]
    return {row.backend: row for row in memory.forecast(["single", *names], settings, dict.fromkeys(names, 8) | {"single": 1})}


def test_what_the_libraries_keep_to_exchange(forecasts):
    # FSDP, while a layer is computed: it, the next one, the gradients of the one before, and the rest of the model.
    buffers = {"single": 0, "ddp": P, "horovod_torch": 128 * 2**20, "fsdp": 3 * LAYER + OUTSIDE, "deepspeed_zero@0": P}
    # Stage 3 keeps whole parameters too.
    buffers |= {"deepspeed_zero@2": 2 * P, "deepspeed_zero@3": 3 * P, "fsdp@keep": P + LAYER}
    assert {name: forecasts[name].buffers for name in buffers} == buffers
    assert forecasts["ddp"].peak - forecasts["single"].peak == P


def test_the_peak_is_at_most_the_sum_and_falls_with_what_is_sharded(forecasts):
    for row in forecasts.values():
        assert row.parameters + row.optimizer_state < row.peak
    peaks = [forecasts[name].peak for name in ("ddp", "zero_redundancy", "fsdp@keep", "fsdp")]
    assert peaks == sorted(peaks, reverse=True)
    assert forecasts["pipeline"].activations < forecasts["pipeline@gpipe"].activations
    assert forecasts["tensor_parallel"].activations < forecasts["single"].activations / 2


@pytest.mark.parametrize("name", ["u-net", "mlp-mixer"])
def test_what_is_counted_of_a_file_is_what_autograd_keeps(name, activations, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(BEGINNING + SOUND[name])
    settings = memory.settings_from(memory.Memory(model=str(path), batch_size=16))
    module = modules.build(settings, "cpu", activations.ONE_RANK)
    batch = activations.batches.of_warm_up(memory.workloads.workload_of(settings).model, 16, "fp32")
    (inputs, targets, weights, _), *_ = steps.tensors([batch], "cpu")
    excluded = {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), *module.buffers(), inputs, targets)}
    storages = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in excluded:
            # Kept, so that no other tensor comes to lie at the same place.
            storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        modules.Criterion(settings).loss(module(inputs), targets, weights)
    step = activations.of_step(settings)
    assert step.activations == pytest.approx(sum(storage.nbytes() for storage in storages.values()), rel=0.03)
    assert step.activations < step.peak_without_gradients <= step.peak


def test_what_depends_on_values_has_no_forecast(activations, tmp_path):
    path = tmp_path / "mine.py"
    text = SOUND["mlp-mixer"].replace("return self.head(x.mean(1))", "return self.head(x.mean(1) * (2 if x.sum().item() > 0 else 1))")
    path.write_text(BEGINNING + text)
    with refused("there is no forecast for mine, which cannot be computed without data"):
        activations.of_step(memory.settings_from(memory.Memory(model=str(path))))


def test_the_share_of_the_gradients_bounds_the_peak(activations):
    step = activations.StepBytes(10, 20, 12)
    assert [step.peak_with(share) for share in (0, 1 / 4, 1)] == [12, 14, 20]


@pytest.mark.parametrize("num_ranks", [2, 3, 8])
def test_parameters_are_dealt_as_zero_redundancy_optimizer_deals_them(num_ranks):
    # They take seconds, and other processes only collect this test.
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.testing._internal.distributed.fake_pg import FakeStore

    sizes = [50, 7, 7, 120, 33, 8, 8, 60, 1]
    dist.init_process_group("fake", rank=0, world_size=num_ranks, store=FakeStore())
    try:
        dealt = ZeroRedundancyOptimizer([torch.nn.Parameter(torch.zeros(size)) for size in sizes], torch.optim.SGD, lr=0.1)
        largest = max(sum(part.numel() for group in hand for part in group["params"]) for hand in dealt._partition_parameters())
    finally:
        dist.destroy_process_group()
    assert memory.largest_hand(sizes, num_ranks) * sum(sizes) == largest


def test_the_table_has_every_backend():
    status, output, error = run_module("launch.memory", *OPTIONS, "--backends", "single,ddp,horovod_torch")
    assert (status, error) == (0, "")
    assert f"transformer: {P // 4:,} parameters; 8 samples per step, fp32, adam: memory per rank" in output
    assert [line.split()[1] for line in output.splitlines() if line.startswith("│")] == ["single", "ddp", "horovod_torch"]


def test_the_json_has_bytes_and_what_is_left_out():
    status, output, _ = run_module("launch.memory", "--ranks", "3", "--batch-size", "6", "--json")
    assert status == 0
    written = json.loads(output)
    names = [row["backend"] for row in written["backends"]]
    assert [name for name in memory.BACKENDS if name not in names] == ["tensor_parallel"]
    assert "tensor_parallel divides the 4 heads of transformer over its ranks" in written["left_out"][0]


MISTAKES = [
    (("--backends", "nope"), "there is no backend 'nope'; choose from: single"),
    (("--backends", ","), "--backends is ','; give backends such as ddp,fsdp,deepspeed_zero@3"),
    (("--backends", "ddp@nope"), "there is no ddp@nope; choose from: ddp@mpi"),
    (("--backends", "parameter_server"), "there is no forecast for parameter_server"),
    (("--backends", "tensor_parallel", "--ranks", "3"), "divides the 4 heads of transformer over its ranks, and 3 ranks do not"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[" ".join(arguments)[:40] for arguments, _ in MISTAKES])
def test_a_mistake_is_one_line(arguments, message):
    expect_refused(message, "launch.memory", *arguments)


@pytest.mark.parametrize(("option", "subject"), [({}, "--workload transformer"), ({"model": "net.py"}, "--model net.py")])
def test_what_a_process_that_ends_was_to_forecast_is_named(option, subject, monkeypatch):
    def ended(named, *_, **__):
        raise UserError(named)

    monkeypatch.setattr(memory.apart, "call", ended)
    with pytest.raises(UserError, match=subject):
        memory.run(memory.Memory(**option))

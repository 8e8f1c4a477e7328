"""What each rank holds of parameters, gradients and optimizer state, which is what sharding promises; and the peak of tensors, as forecast.

The peak is compared with PyTorch's own trackers of a training step: MemTracker and FSDPMemTracker under FakeTensorMode count without
computing; ranks are of a fake process group. What takes seconds to import is imported by the tests: other processes only collect them.
"""

import dataclasses
import importlib
import json

import pytest
import torch
import torch.distributed as dist

from common import workloads
from common.backends import file_of, settings_of
from common.config import Settings
from common.cost import sharing, volumes
from common.declarations import declared
from common.model.cnn import Cnn
from common.model.decoder import Decoder
from common.ranks.launcher_variables import Ranks
from frameworks.shared.pytorch import modules, steps
from launch import memory
from tests.support.agreement_runs import FLOAT32
from tests.support.contract import HELD, named
from tests.support.made_records import typed
from tests.support.running import BIN, completed
from tests.support.small_models import RESNET, random_batch

WHOLE_BYTES = workloads.gradient_bytes(workloads.resolve(Settings(), 2))
CPU = torch.device("cpu")
WITHIN = 0.1
DECODER = Decoder(256, 8, 6, 128)
SMALL = {
    "cnn": Cnn(),
    "resnet": dataclasses.replace(RESNET, image_size=64, width=16),
    # Small, since a processor without bfloat16 computes that slowly.
    "small-decoder": Decoder(128, 4, 3, 64),
}  # fmt: skip


def expect_forecast(name, tensor_bytes):
    """The rank with most holds as much after a step as is forecast."""
    settings = workloads.resolve(dataclasses.replace(settings_of(name, Settings()), scaling="weak", batch_size=8), 1)
    (forecast,) = memory.forecast([name], settings, {name: 2})
    most = max(range(2), key=lambda rank: sum(tensor_bytes[part][rank] for part in sharing.PARTS))
    ranks = [most] if declared()[file_of(name)].pipelined else range(2)
    for part in sharing.PARTS:
        assert getattr(forecast, part) == pytest.approx(max(tensor_bytes[part][rank] for rank in ranks), rel=0.01), part


@pytest.mark.matrix
@pytest.mark.runs(needed=lambda name: [(name, 2, FLOAT32)])
@pytest.mark.parametrize("name", HELD)
def test_a_rank_holds_its_share_and_what_is_forecast(name, trained):
    record, _ = trained(name, 2, FLOAT32)
    assert record["status"] == "ok", record["error"]
    for point, shares in HELD[name].items():
        tensor_bytes = record["tensor_bytes_by_rank"][point]
        assert [by_rank[0] / WHOLE_BYTES for by_rank in tensor_bytes.values()] == pytest.approx(shares, abs=0.01), point
    (typed_record,) = typed([record])
    theory = volumes.expected_state_bytes(typed_record)
    assert (theory is None) == (sharing.of(name) is None)
    if theory:
        assert volumes.state_bytes(typed_record) / theory == pytest.approx(named("off_theory").get(name, 1), abs=0.01)
    # Not of a server's worker, nor where a library frees the gradients within the step.
    _, gradients, _ = HELD[name].get("after_step", (1, 1, 1))
    if gradients and not declared()[file_of(name)].num_servers:
        expect_forecast(name, record["tensor_bytes_by_rank"]["after_step"])


@pytest.fixture(scope="module")
def trackers():
    """PyTorch's module of trackers."""
    return importlib.import_module("torch.distributed._tools.fsdp2_mem_tracker")


@pytest.fixture
def fake_ranks():
    """A function that makes this process rank 0 of a number of ranks whose communication does nothing."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def begin(num_ranks):
        dist.init_process_group("fake", rank=0, world_size=num_ranks, store=FakeStore())
        return Ranks(0, num_ranks, 0, num_ranks, "test")

    yield begin
    if dist.is_initialized():
        dist.destroy_process_group()


def resized(model, monkeypatch, **settings):
    """The settings of a training of a model, in the place of the default workload's."""
    monkeypatch.setitem(workloads.WORKLOADS, "cnn", workloads.WORKLOADS["cnn"]._replace(model=model))
    settings = {"optimizer": "adam", "learning_rate": 0.1, "scaling": "weak"} | settings
    return workloads.resolve(Settings(**settings), 1)


def built(settings):
    """The module of a training, without values."""
    return modules.build(settings, CPU, Ranks(0, 1, 0, 1, "test"))


def forecast_peak(name, settings, num_ranks):
    return memory.forecast([name], settings_of(name, settings), {name: num_ranks})[0].peak


def batch(settings):
    """Inputs, targets and weights of random samples."""
    model = workloads.workload_of(settings).model
    return [torch.from_numpy(array) for array in random_batch(model, settings.batch_size, settings.precision)[:3]]


def faked(mode, module):
    """The module with fake tensors in the place of its parameters and buffers."""
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            part.register_parameter(name, torch.nn.Parameter(mode.from_tensor(parameter.detach())))
        for name, buffer in list(part.named_buffers(recurse=False)):
            part.register_buffer(name, mode.from_tensor(buffer), persistent=False)
    return module


def peak(tracker, module, optimizer, samples):
    """The most bytes of tensors in a step, after a first one in which the optimizer allocates its state."""
    inputs, targets, weights = samples

    def step():
        optimizer.zero_grad()
        modules.Criterion(Settings()).loss(module(inputs), targets, weights).backward()
        optimizer.step()

    with tracker:
        step()
        tracker.reset_mod_stats()
        step()
    (of_device,) = tracker.get_tracker_snapshot("peak").values()
    return next(size for kind, size in of_device.items() if str(kind).endswith("Total"))


@pytest.mark.matrix
@pytest.mark.parametrize(("name", "precision"), [("small-decoder", "fp64"), ("small-decoder", "bf16"), ("cnn", "fp32"), ("resnet", "fp32")])
def test_the_peak_of_real_tensors_in_one_process(name, precision, monkeypatch, trackers):
    settings = resized(SMALL[name], monkeypatch, batch_size=8, precision=precision)
    module = built(settings)
    optimizer, tracker = steps.optimizer_for(settings, module), trackers.MemTracker()
    tracker.track_external(module, optimizer)
    assert forecast_peak("single", settings, 1) == pytest.approx(peak(tracker, module, optimizer, batch(settings)), rel=WITHIN)


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["fsdp", "fsdp@keep"])
def test_the_peak_of_fsdp(name, monkeypatch, fake_ranks, trackers):
    from torch._subclasses.fake_tensor import FakeTensorMode

    from frameworks.shared.pytorch import fully_shard

    settings, num_ranks = resized(DECODER, monkeypatch, batch_size=8), 64
    forecast, module = forecast_peak(name, settings, num_ranks), built(settings)
    fake_ranks(num_ranks)
    # A mesh has real tensors.
    mesh = fully_shard.init_device_mesh("cpu", (num_ranks,))
    monkeypatch.setattr(fully_shard, "init_device_mesh", lambda *_: mesh)
    mode = FakeTensorMode()
    module, samples = faked(mode, module), [mode.from_tensor(tensor) for tensor in batch(settings)]
    with mode:
        fully_shard.shard(module, modules.layers_of(settings, module), settings_of(name, settings), CPU)
        optimizer = steps.unfused(steps.optimizer_for(settings, module))
        tracker = trackers.FSDPMemTracker(module, optimizer)
        tracker.track_inputs(())
        counted = peak(tracker, module, optimizer, samples)
    assert forecast == pytest.approx(counted, rel=WITHIN)


@pytest.mark.matrix
def test_the_peak_of_tensor_parallelism(monkeypatch, fake_ranks, trackers):
    from frameworks.shared.pytorch import divided_layers

    settings, num_ranks = resized(DECODER, monkeypatch, batch_size=8), 8
    forecast, module = forecast_peak("tensor_parallel", settings, num_ranks), built(settings)
    divided_layers.divide(module, fake_ranks(num_ranks), CPU)
    optimizer, tracker = steps.unfused(steps.optimizer_for(settings, module)), trackers.MemTracker()
    tracker.track_external(module, optimizer)
    counted = peak(tracker, module, optimizer, batch(settings))
    assert forecast == pytest.approx(counted, rel=WITHIN)


@pytest.mark.matrix
def test_the_peak_of_the_rank_of_a_pipeline_that_needs_most(tmp_path, monkeypatch):
    from tests.support import pipeline_memory_run

    done = completed(BIN / "mpiexec", "-n", 2, BIN / "python", "-m", "tests.support.pipeline_memory_run", tmp_path)
    assert done.returncode == 0, done.stderr
    counted = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for name in pipeline_memory_run.NAMES:
        settings = resized(pipeline_memory_run.MODEL, monkeypatch, **pipeline_memory_run.SIZES)
        assert forecast_peak(name, settings, 2) == pytest.approx(max(of_rank[name] for of_rank in counted), rel=WITHIN), name

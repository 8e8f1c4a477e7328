"""What each rank holds of parameters, gradients and optimizer state, which is what sharding promises; and the peak of tensors, as forecast.

The peak is compared with PyTorch's own trackers of a training step: MemTracker and FSDPMemTracker under FakeTensorMode count without
computing; ranks are of a fake process group.
"""

import dataclasses
import json

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from common import workloads
from common.backends import file_of, settings_of
from common.config import Settings
from common.cost import memory_forecast, sharing
from common.cost.memory_forecast import Training
from common.declarations import declared
from common.model.families import Cnn, Decoder, EncoderDecoder
from common.process.ranks import Ranks
from frameworks.shared.pytorch import fsdp, models, steps, tensor_parallel
from launch.report import volumes
from tests.support import pipeline_memory_run
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
    "decoder": DECODER, "encoder-decoder": EncoderDecoder(128, 4, 3, 256, source_length=9, target_length=20), "cnn": Cnn(),
    "resnet": RESNET._replace(image_size=64, width=16),
    # For bfloat16, which a processor without it computes slowly.
    "small-decoder": Decoder(128, 4, 3, 64),
}  # fmt: skip


def is_forecast(name):
    """Whether there is a forecast of a backend: not of a server's worker, nor where a library frees the gradients within the step."""
    _, gradients, _ = HELD[name].get("after_step", (1, 1, 1))
    return gradients > 0 and not declared()[file_of(name)].num_servers


@pytest.mark.matrix
@pytest.mark.runs(needed=lambda name: [(name, 2, FLOAT32)])
@pytest.mark.parametrize("name", [name for name in HELD if is_forecast(name)])
def test_the_forecast_is_what_the_rank_with_most_holds_after_a_step(name, trained):
    settings = workloads.resolve(settings_of(name, Settings()), 2)
    training = Training(Cnn(), 8, optimizer=settings.optimizer, momentum=settings.momentum, device="cpu")
    record, _ = trained(name, 2, FLOAT32)
    held = record["tensor_bytes_by_rank"]["after_step"]
    for rank, forecast in enumerate(memory_forecast.by_rank(name, training, 2)):
        ranks = [rank] if declared()[file_of(name)].pipelined else range(2)
        for part in sharing.PARTS:
            assert getattr(forecast, part) == pytest.approx(max(held[part][rank] for rank in ranks), rel=0.01), part


@pytest.mark.matrix
@pytest.mark.runs(needed=lambda name: [(name, 2, FLOAT32)])
@pytest.mark.parametrize("name", HELD)
def test_a_rank_holds_its_share(name, trained):
    record, _ = trained(name, 2, FLOAT32)
    assert record["status"] == "ok", record["error"]
    for point, shares in HELD[name].items():
        held = record["tensor_bytes_by_rank"][point]
        assert [by_rank[0] / WHOLE_BYTES for by_rank in held.values()] == pytest.approx(shares, abs=0.01), point
    (typed_record,) = typed([record])
    theory = volumes.expected_state_bytes(typed_record)
    assert (theory is None) == (sharing.of(name) is None)
    if theory:
        assert volumes.state_bytes(typed_record) / theory == pytest.approx(named("off_theory").get(name, 1), abs=0.01)


@pytest.fixture
def fake_ranks():
    """A function that makes this process rank 0 of a number of ranks whose communication does nothing."""

    def begin(num_ranks):
        dist.init_process_group("fake", rank=0, world_size=num_ranks, store=FakeStore())
        return Ranks(0, num_ranks, 0, num_ranks, "test")

    yield begin
    if dist.is_initialized():
        dist.destroy_process_group()


def built(training, monkeypatch):
    """The settings and the module of a training, without values."""
    settings = dataclasses.replace(
        Settings(), precision=training.precision, recompute=training.recompute, optimizer=training.optimizer, learning_rate=0.1
    )
    monkeypatch.setitem(workloads.WORKLOADS, "cnn", workloads.WORKLOADS["cnn"]._replace(model=training.model))
    return settings, models.build(settings, CPU, Ranks(0, 1, 0, 1, "test"))


def batch(training):
    """Inputs, targets and weights of random samples."""
    return [torch.from_numpy(array) for array in random_batch(training.model, training.batch_size, training.precision)[:3]]


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
        steps.weighted_loss(module(inputs), targets, weights).backward()
        optimizer.step()

    with tracker:
        step()
        tracker.reset_mod_stats()
        step()
    (of_device,) = tracker.get_tracker_snapshot("peak").values()
    return next(size for kind, size in of_device.items() if str(kind).endswith("Total"))


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("name", "precision", "recompute", "num_samples"),
    [
        ("decoder", "fp32", False, 1), ("decoder", "fp32", True, 8), ("decoder", "fp64", False, 8), ("small-decoder", "bf16", False, 8),
        ("small-decoder", "bf16", True, 8), ("encoder-decoder", "fp32", False, 8), ("encoder-decoder", "fp32", True, 64),
        ("cnn", "fp32", False, 8), ("resnet", "fp32", False, 8),
    ],
)  # fmt: skip
def test_the_peak_of_real_tensors_in_one_process(name, precision, recompute, num_samples, monkeypatch):
    training = Training(SMALL[name], num_samples, precision, recompute=recompute, device="cpu")
    settings, module = built(training, monkeypatch)
    optimizer, tracker = steps.optimizer_for(settings, module), MemTracker()
    tracker.track_external(module, optimizer)
    # Of a recomputed encoder-decoder it is up to 12 % too low: the passes through nn.Transformer have tensors that are not in the formula.
    within = 0.12 if recompute and "encoder" in name else WITHIN
    assert memory_forecast.of("single", training, 1).peak == pytest.approx(peak(tracker, module, optimizer, batch(training)), rel=within)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("name", "num_ranks", "num_samples", "precision", "recompute"),
    [
        ("fsdp", 8, 1, "fp32", False), ("fsdp", 64, 8, "fp32", True), ("fsdp", 8, 8, "bf16", False), ("fsdp", 64, 1, "fp64", False),
        ("fsdp@keep", 8, 1, "fp32", False), ("fsdp@keep", 64, 8, "fp32", True), ("fsdp@hsdp", 64, 8, "fp32", False),
    ],
)  # fmt: skip
def test_the_peak_of_fsdp(name, num_ranks, num_samples, precision, recompute, monkeypatch, fake_ranks):
    training = Training(DECODER, num_samples, precision, recompute=recompute, device="cpu")
    settings, module = built(training, monkeypatch)
    ranks, sharding = fake_ranks(num_ranks), name.partition("@")[2] or None
    # A mesh has real tensors.
    meshes = {None: init_device_mesh("cpu", (num_ranks,)), "hsdp": init_device_mesh("cpu", (2, num_ranks // 2), mesh_dim_names=("a", "b"))}
    monkeypatch.setattr(fsdp, "init_device_mesh", lambda *_, **__: meshes.get(sharding, meshes[None]))
    mode = FakeTensorMode()
    module, samples = faked(mode, module), [mode.from_tensor(tensor) for tensor in batch(training)]
    with mode:
        fsdp.shard(module, models.layers_of(settings, module), sharding, fsdp.policy_of(settings, module), ranks, CPU)
        optimizer = steps.unfused(steps.optimizer_for(settings, module))
        tracker = FSDPMemTracker(module, optimizer)
        tracker.track_inputs(())
        counted = peak(tracker, module, optimizer, samples)
    assert memory_forecast.of(name, training, num_ranks).peak == pytest.approx(counted, rel=WITHIN)


@pytest.mark.matrix
@pytest.mark.parametrize(("num_ranks", "recompute"), [(2, False), (8, False), (8, True)])
def test_the_peak_of_tensor_parallelism(num_ranks, recompute, monkeypatch, fake_ranks):
    training = Training(DECODER, 8, recompute=recompute, device="cpu")
    settings, module = built(training, monkeypatch)
    tensor_parallel.divide(module, fake_ranks(num_ranks), CPU)
    optimizer, tracker = steps.unfused(steps.optimizer_for(settings, module)), MemTracker()
    tracker.track_external(module, optimizer)
    counted = peak(tracker, module, optimizer, batch(training))
    assert memory_forecast.of("tensor_parallel", training, num_ranks).peak == pytest.approx(counted, rel=WITHIN)


@pytest.mark.matrix
def test_the_peak_of_each_rank_of_a_pipeline(tmp_path):
    done = completed(BIN / "mpiexec", "-n", 2, BIN / "python", "-m", "tests.support.pipeline_memory_run", tmp_path)
    assert done.returncode == 0, done.stderr
    counted = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for name in pipeline_memory_run.NAMES:
        for kind, recompute in (("plain", False), ("recomputed", True)):
            # Zero-bubble schedules with --recompute keep less than is forecast, which is what they keep without.
            within = 0.16 if recompute and "zero" in name else WITHIN
            forecasts = memory_forecast.by_rank(name, pipeline_memory_run.TRAINING._replace(recompute=recompute), 2)
            peaks = [of_rank[name][kind] for of_rank in counted]
            assert [forecast.peak for forecast in forecasts] == pytest.approx(peaks, rel=within), (name, kind)

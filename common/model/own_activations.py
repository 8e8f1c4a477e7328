"""The activations of a user's model, which PyTorch's MemTracker counts in a step on tensors without data (FakeTensorMode)."""

import functools
import importlib
from typing import Any, NamedTuple

from common.model import own_file, own_model
from common.model.own_model import OwnModel
from common.model.parts import Sizes

# What a sample takes is the difference of two batches, without what a batch of any size takes.
BATCH_SIZES = (8, 16)
DOUBLE_BYTES = 8


class Tracked(NamedTuple):
    """Bytes of each sample of a batch: `kept` after the forward pass, and `working`, what the most at once in the step is more."""

    kept: float
    working: float


@functools.cache
def of_sample(model: OwnModel, sizes: Sizes) -> Tracked | None:
    """Returns the activations of a sample; None where the tracker does not take the model, or the sizes are of no run."""
    if sizes.element < sizes.statistic:
        return None
    try:
        (kept, peak), (kept_of_more, peak_of_more) = (_tracked(model, batch_size, sizes) for batch_size in BATCH_SIZES)
    # Fake tensors have no values, on which a model may depend, and not every operation has a fake one.
    except Exception:
        return None
    num_samples = BATCH_SIZES[1] - BATCH_SIZES[0]
    of_kept, of_peak = (kept_of_more - kept) / num_samples, (peak_of_more - peak) / num_samples
    return Tracked(of_kept, max(0.0, of_peak - of_kept))


def _tracked(model: OwnModel, batch_size: int, sizes: Sizes) -> tuple[int, int]:
    """Returns the bytes of the activations after the forward pass of a batch, and the most of all tensors in the step."""
    file, torch = model.file, own_file.torch()
    fake = importlib.import_module("torch._subclasses.fake_tensor")
    tracker = importlib.import_module("torch.distributed._tools.mem_tracker").MemTracker()
    is_double = sizes.element == DOUBLE_BYTES
    batch = own_file.in_precision(own_model.first_batch(model, batch_size), "fp64" if is_double else "fp32")
    module = own_file.build(file, seed=0)
    module = module.double() if is_double else module
    with fake.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        _take_data(torch, module, mode)
        inputs, targets = (own_file.mapped(mode.from_tensor, part) for part in batch)
        # The batch is no activation, though the first layer may keep it.
        tracker.track_external(module, inputs, targets)
        with tracker:
            with torch.autocast("cpu", torch.bfloat16, enabled=sizes.mixed):
                outputs = module(inputs)
            loss = own_file.call(file, "loss", outputs, targets)
            kept = _bytes(tracker.get_tracker_snapshot(), "Activation")
            loss.mean().backward()
            peak = tracker.get_tracker_snapshot("peak")
    return kept, _bytes(peak, "Total") - _bytes(peak, "Other")


def _take_data(torch: Any, module: Any, mode: Any) -> None:
    """Replaces the parameters and buffers of a module by tensors without data."""
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            setattr(part, name, torch.nn.Parameter(mode.from_tensor(parameter), parameter.requires_grad))
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, mode.from_tensor(buffer))


def _bytes(snapshot: Any, kind: str) -> int:
    """Returns the bytes of a kind on all devices."""
    sizes = (item for of_device in snapshot.values() for item in of_device.items())
    return sum(num_bytes for name, num_bytes in sizes if getattr(name, "value", name) == kind)

"""The metric of a user's file whose number is no mean over samples: sums by metric(), of which finish() makes the number.

The sums are a tensor, or nested tuples, lists and dictionaries of tensors and numbers. They are added up over batches and ranks.
"""

import functools
import importlib
import math
from collections.abc import Sequence
from typing import Any

from common.command_line import shortened
from common.model import own_file, own_model
from common.model.own_file import OwnFile
from common.model.own_model import OwnModel


@functools.cache
def of_first(model: OwnModel) -> Any:
    """Returns the sums over the first samples: those of every batch are nested alike."""
    file, torch = model.file, own_file.torch()
    inputs, targets = own_file.in_precision(own_model.first_batch(model, own_model.NUM_FIRST), "fp32")
    with torch.no_grad():
        outputs = own_file.attempt(file, own_file.line_of(file, "model"), own_file.build(file, seed=0).eval(), inputs)
        return own_file.call(file, "metric", outputs, targets)


def num_sums(model: OwnModel) -> int:
    """Returns the number of sums; 0 for a file without finish(), whose metric is a mean."""
    return flat(of_first(model)).numel() if model.file.has("finish") else 0


def flat(sums: Any, device: Any = "cpu") -> Any:
    """Returns the sums as one tensor of one dimension in float64, in which they are added up."""
    torch = own_file.torch()
    leaves, _ = _pytree().tree_flatten(sums)
    return torch.cat([torch.as_tensor(leaf, dtype=torch.float64, device=device).detach().flatten() for leaf in leaves])


def finished(model: OwnModel, sums: Sequence[float], num_samples: int) -> float:
    """Returns the number that finish() makes of the sums. Raises UserError where it makes none."""
    file, torch = model.file, own_file.torch()
    leaves, structure = _pytree().tree_flatten(of_first(model))
    shapes = [torch.as_tensor(leaf).shape for leaf in leaves]
    parts = torch.tensor(sums, dtype=torch.float64).split([shape.numel() for shape in shapes])
    nested = _pytree().tree_unflatten([part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)], structure)
    value = own_file.call(file, "finish", nested, num_samples)
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        own_file.refuse(file, own_file.line_of(file, "finish"), f"finish() returns {shortened(repr(value))}; it must return a number")


def expect_number(file: OwnFile, value: float) -> None:
    """Raises UserError for a metric that cannot be compared with a target."""
    name, of_right = "finish" if file.has("finish") else "metric", file.has_accuracy
    if not (0 <= value <= 1 if of_right else math.isfinite(value)):
        expected = "the number of right ones" if of_right else "a finite number"
        own_file.refuse(file, own_file.line_of(file, name), f"{name}() gives {value:g} for the held-out samples; return {expected}")


def _pytree() -> Any:
    return importlib.import_module("torch.utils._pytree")

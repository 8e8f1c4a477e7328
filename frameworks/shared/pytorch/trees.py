"""Nested tuples, lists and dictionaries of tensors, as the batches of a user's own data are."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def mapped(function: Callable[[Tensor], Any], values: Any) -> Any:
    """Applies a function to each tensor or array, as a tensor. Other values, such as texts, stay as they are."""
    if isinstance(values, np.ndarray | Tensor):
        return function(torch.as_tensor(values))
    if isinstance(values, Mapping):
        return {key: mapped(function, value) for key, value in values.items()}
    if type(values) in (tuple, list):
        return type(values)(mapped(function, value) for value in values)
    return values


def chunks(values: Any, number: int) -> list[Any]:
    """Returns as many parts of equal size along the first axis."""
    return [mapped(lambda tensor, part=part: tensor.chunk(number)[part], values) for part in range(number)]

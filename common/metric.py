"""The metric of an evaluation beside its target: the accuracy, of which more is better, or a number of which less may be."""

from collections.abc import Iterable
from typing import Literal

# What an evaluation gives: the share of right predictions, or another number of a user's file.
Metric = Literal["accuracy", "metric"]


def meets(value: float, target: float, lower_is_better: bool) -> bool:
    """Returns whether a value is at least as good as the target. NaN never is."""
    return value <= target if lower_is_better else value >= target


def best(values: Iterable[float], lower_is_better: bool) -> float:
    return min(values) if lower_is_better else max(values)

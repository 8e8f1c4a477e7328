"""What a run computes from the outputs of its model: the loss, and what the evaluation counts."""

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


class Criterion(Protocol):
    """The loss of a model and what its evaluation counts, from its outputs."""

    # Of those of a file with finish().
    num_sums: int

    def loss(self, outputs: Any, targets: Any, weights: Tensor, /) -> Tensor:
        """Returns the weighted sum of the losses of a batch."""
        ...

    def totals(self, outputs: Any, targets: Any, weights: Tensor, /) -> Tensor:
        """Returns the Totals of a batch as a tensor."""
        ...


class CrossEntropy:
    """The criterion of all of Tandem's own models."""

    num_sums = 0

    def loss(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        return weighted_loss(outputs, targets, weights)

    def totals(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        return totals_of(outputs, targets, weights)


CROSS_ENTROPY = CrossEntropy()


def weighted_loss(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Computes the weighted sum of cross entropies: logits (…, classes), targets (…) or probabilities (…, classes), weights (…).

    The loss is of the type of the weights, also of logits in bfloat16.
    """
    losses = cross_entropy(logits.to(weights.dtype).flatten(0, -2), targets.flatten(0, weights.dim() - 1), reduction="none")
    return (losses * weights.flatten()).sum()


def totals_of(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Returns the Totals of one batch as a tensor."""
    correct = (logits.argmax(-1) == targets) * weights
    return torch.stack([weighted_loss(logits, targets, weights), correct.sum(), weights.sum()])

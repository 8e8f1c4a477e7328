"""Floating-point operations of a training, by formula. Pure.

Matrix products and convolutions count, with two operations for a multiplication and its addition; all else is left out. A model states them
for each of its layers (common/model/parts.py).
"""

from common.model.families import parts_of


def training(model):
    """Operations to train on one sample: three times the forward pass (Chowdhery et al. 2022, arXiv:2204.02311, appendix B).

    The backward pass has two products for each of the forward pass. Activations that are computed again (--recompute) do not count.
    """
    return 3 * sum(part.flops for part in parts_of(model))

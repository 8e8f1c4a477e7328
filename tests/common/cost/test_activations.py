"""The formulas of activations, against the tensors that autograd keeps in a real forward pass."""

import math

import pytest
import torch

from common.cost import activations
from common.cost.memory_forecast import Training
from common.model.families import Decoder, can_recompute, parameters_of
from frameworks.shared.pytorch import steps
from tests.frameworks.test_memory import batch, built
from tests.support.small_models import MODELS

BATCH = 3
# The first projections of attention to oneself need no gradient by the batch, and so keep no weights. Batch norm keeps two numbers per
# channel.
TOLERANCE = {("encoder-decoder", "bf16"): 0.07, ("encoder-decoder of one source position", "bf16"): 0.08, "resnet": 0.02}


def kept_bytes(training, monkeypatch):
    """Bytes of the tensors that autograd keeps of a batch, but for parameters, constants and the batch."""
    (_, module), (inputs, targets, weights) = built(training, monkeypatch), batch(training)
    excluded = {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), *module.buffers(), inputs, targets, weights)}
    storages = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in excluded:
            # Kept, so that no other tensor comes to lie at the same place.
            storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        steps.weighted_loss(module(inputs), targets, weights)
    return sum(storage.nbytes() for storage in storages.values())


def formula(training):
    parts = activations.by_part(training.model, activations.sizes_of(training.precision, "cpu"))
    parts = activations.recomputed(parts) if training.recompute else parts
    return sum(BATCH * part.kept + (0 if part.recomputed else part.copies) for part in parts)


CASES = [
    (name, precision, recompute)
    for name in MODELS
    for precision in ("fp32", "fp64", "bf16")
    for recompute in ((False, True) if can_recompute(MODELS[name]) else (False,))
]


@pytest.mark.parametrize(("name", "precision", "recompute"), CASES)
def test_the_formula_gives_what_autograd_keeps(name, precision, recompute, monkeypatch):
    training = Training(MODELS[name], BATCH, precision, recompute=recompute)
    # A number or two of the loss are left out.
    tolerance = TOLERANCE.get(name, 0 if recompute else TOLERANCE.get((name, precision), 0))
    assert formula(training) == pytest.approx(kept_bytes(training, monkeypatch), rel=tolerance, abs=8)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_parts_have_all_parameters(model):
    parts = activations.by_part(model, activations.sizes_of("fp32", "cuda"))
    number = sum(math.prod(initial.shape) for initial in parameters_of(model).values())
    for of_model in (parts, activations.recomputed(parts)):
        assert sum(part.num_parameters for part in of_model) == number


def test_a_layer_in_units_of_its_input_is_as_the_paper_counts():
    """Of each product its input, as in Korthikanti et al. 2022, section 4.1, but of RMSNorm, SwiGLU and attention without scores."""
    model = Decoder(64, 1, 1, 64)
    sizes = activations.sizes_of("fp32", "cuda")
    _, attention, feed, _ = activations.by_part(model, sizes)
    stream, statistics = 4 * 64 * 64, 4 * 64
    # Input, norm, queries, keys, values, result; a statistic of the norm and one of the softmax per position.
    assert attention.kept == 6 * stream + 2 * statistics
    assert feed.kept == 2 * stream + 4 * 4 * 64 * model.hidden + statistics


def test_tensor_parallelism_divides_all_but_what_it_gathers():
    sizes, model = activations.sizes_of("fp32", "cuda"), Decoder(64, 4, 1, 64)
    _, whole, *_ = activations.by_part(model, sizes)
    _, quarter, *_ = activations.by_part(model, sizes, 4)
    gathered = 4 * 64 * 64
    assert quarter.kept == (whole.kept - gathered) / 4 + gathered


def test_a_recomputed_block_keeps_its_input_and_computes_the_rest_again():
    parts = activations.by_part(MODELS["decoder"], activations.sizes_of("fp32", "cpu"))
    embedding, first, second, head = activations.recomputed(parts)
    assert [part.name for part in (embedding, first, second, head)] == ["embedding", "blocks.0", "blocks.1", "head"]
    assert first.kept == 4 * 10 * 24
    assert first.kept + first.recomputed == parts[1].kept + parts[2].kept
    assert len(activations.recomputed(parts, whole_blocks=False)) == len(parts)

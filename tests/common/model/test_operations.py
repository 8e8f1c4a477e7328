"""The operations of the layers: those of every layer, and with the shapes that the layer has."""

import math
from collections import Counter

import pytest

from common.model import families
from common.model.operations import Loss, Operation
from common.workloads import WORKLOADS
from tests.support.small_models import MODELS

EVERY_MODEL = {name: workload.model for name, workload in WORKLOADS.items()} | MODELS


@pytest.mark.parametrize("model", EVERY_MODEL.values(), ids=EVERY_MODEL)
def test_every_layer_states_operations_with_its_flops_and_its_parameters(model):
    for layer in families.layers_of(model):
        assert layer.operations, layer.name
        assert sum(operation.flops for operation in layer.operations) == layer.flops, layer.name
        sizes = [math.prod(operand.shape) for operation in layer.operations for operand in operation.operands if operand.parameter]
        # The matrix of a tied head is that of the embedding.
        parameters = [math.prod(initial.shape) for initial in layer.parameters.values()] or [layer.num_multiplied]
        assert sum(sizes) == sum(parameters), layer.name


@pytest.mark.parametrize("model", EVERY_MODEL.values(), ids=EVERY_MODEL)
def test_the_operations_of_a_model_are_those_of_its_layers_and_the_loss(model):
    *of_layers, loss = families.operations_of(model)
    assert 3 * sum(operation.flops for operation in of_layers) == families.training_flops(model)
    assert loss == Loss(logits_shape=model.logits_shape, whole_targets=model.whole_targets)
    _, targets, _ = loss.operands
    assert targets.shape == model.target_shape


def test_activation_functions_residual_connections_and_poolings_are_among_them():
    kinds = {name: Counter(operation.kind for operation in families.operations_of(model)) for name, model in EVERY_MODEL.items()}
    assert kinds["cnn"] == {"convolution": 2, "activation": 3, "pooling": 1, "dense": 2, "loss": 1}
    num_layers = WORKLOADS["transformer"].model.num_layers
    of_block = {"norm": 2, "projection": 4, "attention": 1, "residual": 2, "dense": 3, "activation": 1}
    around = Counter(embedding=1, norm=1, dense=1, loss=1)
    assert kinds["transformer"] == Counter({kind: num_layers * number for kind, number in of_block.items()}) + around
    # Two in the encoder's layer, three in the decoder's.
    assert kinds["encoder-decoder"]["residual"] == 2 * 2 + 2 * 3
    assert (kinds["resnet50"]["convolution"], kinds["resnet50"]["residual"], kinds["resnet50"]["pooling"]) == (53, 16, 2)


def test_operations_of_two_kinds_are_not_equal_where_their_shapes_are():
    dense = families.operations_of(WORKLOADS["transformer"].model)
    assert len(set(dense)) == len({(type(operation), operation) for operation in dense})
    assert all(isinstance(operation, Operation) for operation in dense)

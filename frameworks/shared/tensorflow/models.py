"""The models in TensorFlow, and how a run builds its model."""

import functools
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from common.config import Settings
from common.model.description import Model as Described
from common.model.description import layers_of, parameters_of
from common.ranks.launcher_variables import Ranks
from common.workloads import workload_of
from frameworks.shared.networks.layers_tensorflow import in_bfloat16, unchanged
from frameworks.shared.tensorflow.variables import as_tensor

# The types of parameters, their gradients and the loss.
DTYPES = {"fp32": tf.float32, "fp64": tf.float64, "bf16": tf.float32, "tf32": tf.float32}


class Model(tf.Module):
    """A model whose `parameters` are variables with the names of weights.py, and `layers` their layers by the same names."""

    def __init__(self, model: Described, precision: str) -> None:
        super().__init__()
        self.layers = {f"{layer.name}.{name}": layer for layer in layers_of(model) for name in layer.parameters}
        self.parameters: dict[str, tf.Variable] = {
            name: tf.Variable(as_tensor(self.layers, name, np.zeros(initial.shape), DTYPES[precision]), name=name.replace(".", "_"))
            for name, initial in parameters_of(model).items()
        }
        low = in_bfloat16 if precision == "bf16" else unchanged
        self.compute = functools.partial(model.file_in("tensorflow").content.outputs, model, low)

    def forward(self, parameters: Mapping[str, tf.Variable], inputs: tf.Tensor, dropout: bool) -> tf.Tensor:
        """Computes the logits, in the type of the parameters."""
        return tf.cast(self.compute(parameters, inputs, dropout), next(iter(parameters.values())).dtype)


def build(settings: Settings, ranks: Ranks) -> Model:
    """Builds the model of the settings. Parameters are set before training; the random seed is for dropout."""
    tf.random.set_seed(settings.seed * 100_003 + ranks.rank)
    return Model(workload_of(settings).model, settings.precision)

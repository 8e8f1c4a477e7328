"""The models in TensorFlow, and what all backends on TensorFlow share."""

import numpy as np
import tensorflow as tf

from common import workloads
from common.errors import UserError
from common.trainer import Totals

DTYPES = {"fp32": tf.float32, "fp64": tf.float64}

# Axes of a weight in weights.py (OIHW; out, in) -> here (HWIO; in, out), by the number of its axes.
AXES = {1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}
# The inputs of these layers are flattened images: (channels, height, width) in weights.py, (height, width, channels) here.
FLATTENED = {"cnn": {"dense1.weight": (64, 12, 12)}}


class Model(tf.Module):
    """The variables of a workload by the names of weights.py, and the function (variables, inputs, dropout) -> logits."""

    def __init__(self, workload, precision):
        super().__init__()
        self.workload = workload
        shapes = workloads.WORKLOADS[workload].parameters
        self.parameters = {
            name: tf.Variable(as_variable(workload, name, np.zeros(shape)), dtype=DTYPES[precision]) for name, shape in shapes.items()
        }
        self.forward = MODELS[workload]


def cnn(parameters, x, dropout):
    """The CNN of workloads.py: (samples, 28, 28) -> (samples, 10) logits."""

    def layer(name, product):
        return tf.nn.bias_add(product, parameters[f"{name}.bias"])

    x = x[..., tf.newaxis]
    x = tf.nn.relu(layer("conv1", tf.nn.conv2d(x, parameters["conv1.weight"], 1, "VALID")))
    x = tf.nn.relu(layer("conv2", tf.nn.conv2d(x, parameters["conv2.weight"], 1, "VALID")))
    x = tf.nn.max_pool2d(x, 2, 2, "VALID")
    x = tf.nn.dropout(x, workloads.CNN_DROPOUT[0]) if dropout else x
    x = tf.reshape(x, (-1, 64 * 12 * 12))
    x = tf.nn.relu(layer("dense1", x @ parameters["dense1.weight"]))
    x = tf.nn.dropout(x, workloads.CNN_DROPOUT[1]) if dropout else x
    return layer("dense2", x @ parameters["dense2.weight"])


MODELS = {"cnn": cnn}


def pick_device(settings, ranks):
    """Sets TensorFlow to this run's threads, arithmetic and GPU; to be called before TensorFlow does anything.

    Raises UserError where CUDA is asked for and not there, or a node has more ranks than GPUs.
    """
    tf.config.threading.set_intra_op_parallelism_threads(settings.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    # TF32 would make a GPU's fp32 another precision than a CPU's.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    gpus = tf.config.list_physical_devices("GPU")
    if settings.device == "cuda" and not gpus:
        raise UserError("--device cuda, but TensorFlow finds no GPU here; use --device cpu, or set up with TANDEM_DEVICE=cuda")
    if settings.device != "cpu" and 1 < len(gpus) < ranks.local_size:
        raise UserError(
            f"{ranks.local_size} ranks on a node with {len(gpus)} GPUs; use at most {len(gpus)} ranks per node, or --device cpu"
        )
    # One visible GPU: the launcher has given each rank its own.
    mine = [] if settings.device == "cpu" or not gpus else [gpus[ranks.local_rank % len(gpus)]]
    tf.config.set_visible_devices(mine, "GPU")


def build(settings, ranks):
    """The model. Its parameters are set before training; random numbers are for dropout alone."""
    tf.random.set_seed(settings.seed * 100_003 + ranks.rank)
    return Model(settings.workload, settings.precision)


def weighted_loss(logits, targets, weights):
    return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits) * weights)


class Optimizer(tf.Module):
    """SGD with momentum, or Adam, by the rules that all backends share.

    TensorFlow's own SGD keeps rate * gradient in its velocity, so that its momentum means something else while the rate
    rises (Goyal et al. 2017, arXiv:1706.02677, remark 2), and its Adam puts epsilon elsewhere than the paper's algorithm 1.
    """

    def __init__(self, settings, parameters):
        super().__init__()
        self.momentum = settings.momentum
        self.kinds = ("adam_mean", "adam_square", "adam_step") if settings.optimizer == "adam" else ("momentum",)
        self.slots = {
            f"{kind}/{name}": tf.Variable(tf.zeros((), tf.float32) if kind == "adam_step" else tf.zeros_like(value))
            for kind in self.kinds
            for name, value in parameters.items()
        }

    def step(self, parameters, gradients, rate):
        for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
            if self.kinds == ("momentum",):
                velocity = self.slots[f"momentum/{name}"]
                velocity.assign(self.momentum * velocity + gradient)
                parameter.assign_sub(rate * velocity)
            else:
                self._adam(name, parameter, gradient, rate)

    def _adam(self, name, parameter, gradient, rate):
        mean, square, step = (self.slots[f"{kind}/{name}"] for kind in self.kinds)
        beta1, beta2 = (tf.constant(beta, gradient.dtype) for beta in workloads.ADAM_BETAS)
        step.assign_add(1)
        mean.assign(beta1 * mean + (1 - beta1) * gradient)
        square.assign(beta2 * square + (1 - beta2) * gradient * gradient)
        taken = tf.cast(step, gradient.dtype)
        spread = tf.sqrt(square / (1 - beta2**taken)) + workloads.ADAM_EPSILON
        parameter.assign_sub(rate / (1 - beta1**taken) * mean / spread)


def tensors(batches, model):
    """The batches' inputs, targets and weights as tensors, and their learning rate, all of the model's precision."""
    dtype = next(iter(model.parameters.values())).dtype
    for batch in batches:
        yield *(tf.convert_to_tensor(array) for array in batch[:3]), tf.constant(batch.learning_rate, dtype)


def evaluate(model, batches):
    """Totals of the batches: the evaluation of every backend on TensorFlow."""
    totals = np.zeros(3)
    for inputs, targets, weights, _ in tensors(batches, model):
        totals += _totals(model, inputs, targets, weights).numpy()
    return Totals(*totals.tolist())


@tf.function(reduce_retracing=True)
def _totals(model, inputs, targets, weights):
    logits = model.forward(model.parameters, inputs, False)
    correct = tf.cast(tf.argmax(logits, 1) == targets, weights.dtype) * weights
    return tf.cast(tf.stack([weighted_loss(logits, targets, weights), tf.reduce_sum(correct), tf.reduce_sum(weights)]), tf.float64)


def state(model, optimizer):
    """Parameters and optimizer slots as arrays, by the names and in the layouts of weights.py."""
    named = model.parameters | optimizer.slots
    return {name: as_array(model.workload, name.rpartition("/")[2], value.numpy()) for name, value in named.items()}


def restore(model, optimizer, state):
    """Copies a state into the model and its optimizer; slots that the state lacks start anew."""
    for name, variable in (model.parameters | optimizer.slots).items():
        if name in state:
            variable.assign(as_variable(model.workload, name.rpartition("/")[2], state[name]))
        else:
            variable.assign(tf.zeros_like(variable))


def as_variable(workload, name, array):
    """A parameter of weights.py, or a slot of it, in TensorFlow's layout."""
    if array.ndim == 0:
        return array
    if name in FLATTENED[workload]:
        channels_first = array.reshape(len(array), *FLATTENED[workload][name])
        array = channels_first.transpose(0, 2, 3, 1).reshape(len(array), -1)
    return np.ascontiguousarray(array.transpose(AXES[array.ndim]))


def as_array(workload, name, array):
    """The inverse of `as_variable`."""
    if array.ndim == 0:
        return array
    array = array.transpose(np.argsort(AXES[array.ndim]))
    if name in FLATTENED[workload]:
        channels, height, width = FLATTENED[workload][name]
        channels_last = array.reshape(len(array), height, width, channels)
        array = channels_last.transpose(0, 3, 1, 2).reshape(len(array), -1)
    return np.ascontiguousarray(array)

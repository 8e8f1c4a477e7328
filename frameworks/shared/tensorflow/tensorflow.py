"""The models in TensorFlow, and the code shared by all TensorFlow backends."""

import contextlib
import functools
import math
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from common.errors import UserError
from common.model import conventions, families
from common.model.decoder import rotary_tables
from common.process.binding import gpu_for
from common.trainer import POINTS, Device, GpuMemory, Held, Totals
from common.workloads import workload_of
from frameworks.shared.tensorflow import resnet

# Of parameters, their gradients and the loss.
DTYPES = {"fp32": tf.float32, "fp64": tf.float64, "bf16": tf.float32, "tf32": tf.float32}

# Permutation of axes from weights.py (OIHW; out, in) to TensorFlow (HWIO; in, out), by number of axes.
AXES = {1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}
# Lookup tables have the same layout everywhere.
TABLES = {"embedding.weight"}


class Model(tf.Module):
    """`parameters`: the variables by the names of weights.py.

    `recompute`: layers keep their inputs alone for the backward pass, which computes their activations again.
    """

    def __init__(self, model, precision, recompute):
        super().__init__()
        self.parameters = {
            name: tf.Variable(as_variable(name, np.zeros(initial.shape)), dtype=DTYPES[precision], name=name.replace(".", "_"))
            for name, initial in families.parameters_of(model).items()
        }
        wrap, low = tf.recompute_grad if recompute else as_it_is, in_bfloat16 if precision == "bf16" else as_it_is
        self.compute = functools.partial(families.implementation_of(model, MODELS, "TensorFlow"), model, wrap, low)

    def forward(self, parameters, inputs, dropout):
        """The logits, in the type of the parameters."""
        return tf.cast(self.compute(parameters, inputs, dropout), next(iter(parameters.values())).dtype)


def in_bfloat16(tensor):
    """What a matrix product or a convolution takes, with --precision bf16."""
    return tf.cast(tensor, tf.bfloat16)


def as_it_is(value):
    """A tensor in other precisions, and a layer that keeps its activations for the backward pass."""
    return value


def cnn(model, _, low, parameters, x, dropout):
    """The CNN of common/model/cnn.py: images (samples, height, width) -> (samples, classes) logits.

    Of every model, `low` is in_bfloat16 or as_it_is. Types change where PyTorch's autocast changes them.
    """
    parameters = {name: low(value) for name, value in parameters.items()}

    def layer(name, product):
        return tf.nn.bias_add(product, parameters[f"{name}.bias"])

    x = low(x[..., tf.newaxis])
    x = tf.nn.relu(layer("conv1", tf.nn.conv2d(x, parameters["conv1.weight"], 1, "VALID")))
    x = tf.nn.relu(layer("conv2", tf.nn.conv2d(x, parameters["conv2.weight"], 1, "VALID")))
    x = tf.nn.max_pool2d(x, model.pooling, model.pooling, "VALID")
    x = tf.nn.dropout(x, conventions.CNN_DROPOUT[0]) if dropout else x
    x = tf.reshape(x, (-1, math.prod(model.pooled_shape)))
    x = tf.nn.relu(layer("dense1", x @ parameters["dense1.weight"]))
    x = tf.nn.dropout(x, conventions.CNN_DROPOUT[1]) if dropout else x
    return layer("dense2", x @ parameters["dense2.weight"])


def in_layers(prefix, layer, wrap, parameters, x, *memory):
    """x after all layers of a stack: layer(its parameters by their names within it, x, *memory), one after the other.

    `wrap(layer)`: `as_it_is`, or one that computes its activations again. That gives gradients to its arguments only, so the parameters are
    among them.
    """
    layers = {}
    for name, value in parameters.items():
        if name.startswith(prefix):
            number, _, name_within = name.removeprefix(prefix).partition(".")
            layers.setdefault(number, {})[name_within] = value
    for layer_parameters in layers.values():
        x = wrap(layer)(layer_parameters, x, *memory)
    return x


def decoder(model, wrap, low, parameters, tokens, _):
    """The decoder-only Transformer of common/model/decoder.py: tokens (samples, context) -> logits (samples, context, tokens)."""

    def product(x, weight):
        return low(x) @ low(weight)

    x = tf.gather(parameters["embedding.weight"], tokens)
    rotary = [tf.constant(table, x.dtype) for table in rotary_tables(model)]

    def block(layer, x):
        normed = rms_norm(x, layer["attention_norm.weight"])
        projected = (tf.cast(product(normed, layer[f"{name}.weight"]), x.dtype) for name in ("query", "key", "value"))
        query, key, value = (heads(tensor, model.num_heads) for tensor in projected)
        mixed = merged(attention(low, rotated(query, rotary), rotated(key, rotary), value, causal=True))
        x += tf.cast(product(mixed, layer["attended.weight"]), x.dtype)
        normed = rms_norm(x, layer["feed_norm.weight"])
        # Computed in the type of x, and then rounded.
        gate = low(tf.nn.silu(tf.cast(product(normed, layer["gate.weight"]), x.dtype)))
        return x + tf.cast(product(gate * product(normed, layer["up.weight"]), layer["down.weight"]), x.dtype)

    normed = rms_norm(in_layers("blocks.", block, wrap, parameters, x), parameters["norm.weight"])
    if model.tied:
        return tf.matmul(low(normed), low(parameters["embedding.weight"]), transpose_b=True)
    return product(normed, parameters["head.weight"])


def encoder_decoder(model, wrap, low, parameters, x, dropout):
    """PyTorch's nn.Transformer: (samples, source and target positions, width) -> (samples, width, target positions)."""

    def affine(x, weight, bias):
        return tf.nn.bias_add(low(x) @ low(weight), low(bias))

    def dense(parameters, name, x):
        return affine(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"])

    def dropped(x):
        return tf.nn.dropout(x, conventions.ENCODER_DECODER_DROPOUT) if dropout else x

    def norm(parameters, name, x):
        mean, variance = tf.nn.moments(x, -1, keepdims=True)
        scale, offset = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
        return tf.nn.batch_normalization(x, mean, variance, offset, scale, conventions.LAYER_NORM_EPSILON)

    def attended(parameters, name, x, memory):
        weights = tf.split(parameters[f"{name}.in_proj_weight"], 3, axis=1)
        biases = tf.split(parameters[f"{name}.in_proj_bias"], 3)
        affines = zip((x, memory, memory), weights, biases, strict=True)
        query, key, value = (heads(tf.cast(affine(*arguments), x.dtype), model.num_heads) for arguments in affines)
        mixed = merged(attention(low, query, key, value, causal=False, dropped=dropped))
        return tf.cast(dropped(dense(parameters, f"{name}.out_proj", mixed)), x.dtype)

    def fed(layer, x):
        return tf.cast(dropped(dense(layer, "linear2", dropped(tf.nn.relu(dense(layer, "linear1", x))))), x.dtype)

    def encoder_layer(layer, x):
        x = norm(layer, "norm1", x + attended(layer, "self_attn", x, x))
        return norm(layer, "norm2", x + fed(layer, x))

    def decoder_layer(layer, x, memory):
        x = norm(layer, "norm1", x + attended(layer, "self_attn", x, x))
        x = norm(layer, "norm2", x + attended(layer, "multihead_attn", x, memory))
        return norm(layer, "norm3", x + fed(layer, x))

    memory, x = x[:, : model.source_length], x[:, model.source_length :]
    memory = norm(parameters, "encoder.norm", in_layers("encoder.layers.", encoder_layer, wrap, parameters, memory))
    x = in_layers("decoder.layers.", decoder_layer, wrap, parameters, x, memory)
    return tf.transpose(norm(parameters, "decoder.norm", x), (0, 2, 1))


def rms_norm(x, weight):
    return x * tf.math.rsqrt(tf.reduce_mean(x * x, -1, keepdims=True) + conventions.RMS_NORM_EPSILON) * weight


def heads(x, num_heads):
    """(samples, positions, width) -> (samples, heads, positions, head width)."""
    return tf.transpose(tf.reshape(x, (-1, x.shape[1], num_heads, x.shape[2] // num_heads)), (0, 2, 1, 3))


def merged(x):
    """The inverse of `heads`."""
    return tf.reshape(tf.transpose(x, (0, 2, 1, 3)), (-1, x.shape[2], x.shape[1] * x.shape[3]))


def rotated(x, rotary):
    """Rotary embeddings (common/model/decoder.py) applied to (samples, heads, context, head width)."""
    cosine, sine = rotary
    real, imaginary = tf.split(x, 2, axis=-1)
    return tf.concat((real * cosine - imaginary * sine, real * sine + imaginary * cosine), axis=-1)


def attention(low, query, key, value, causal, dropped=lambda shares: shares):
    scores = tf.cast(tf.matmul(low(query), low(key), transpose_b=True), query.dtype) / tf.sqrt(tf.cast(query.shape[-1], query.dtype))
    if causal:
        past = np.tri(query.shape[2], dtype=bool)
        scores = tf.where(past, scores, scores.dtype.min)
    return low(dropped(tf.nn.softmax(scores))) @ low(value)


MODELS = {
    families.Cnn: cnn, families.Decoder: decoder, families.EncoderDecoder: encoder_decoder, families.ResNet50: resnet.resnet50,
}  # fmt: skip


def device_problem(device):
    """Why TensorFlow cannot compute on `cpu` or `cuda` here; None if it can."""
    if device == "cuda" and not tf.test.is_built_with_cuda():
        return "this TensorFlow has no CUDA"
    return "TensorFlow finds no GPU" if device == "cuda" and not tf.config.list_physical_devices("GPU") else None


def describe_device(gpu, nccl):
    """The Device of a rank: `gpu` is what pick_device returned, `nccl` the version that communicates."""
    build = tf.sysconfig.get_build_info()
    versions = build.get("cuda_version"), build.get("cudnn_version")
    memory = None if gpu is None else gpu_memory()
    num_threads = tf.config.threading.get_intra_op_parallelism_threads()
    return Device("cpu" if gpu is None else "cuda", gpu, tf.test.is_built_with_cuda(), *versions, nccl, product, memory, num_threads)


def product(precision, size):
    """The `product` of a Device."""
    dtype = {"fp64": tf.float64, "bf16": tf.bfloat16}.get(precision, tf.float32)
    # A GPU multiplies constants faster than other numbers.
    matrix = tf.random.normal((size, size), dtype=dtype)

    def multiply():
        tf.matmul(matrix, matrix)[0, 0].numpy()

    return multiply


def gpu_memory():
    """The GpuMemory of this process. It sees one GPU, which TensorFlow then numbers 0. What its allocator reserved is not told."""
    return GpuMemory(
        lambda: tf.config.experimental.reset_memory_stats("GPU:0"),
        lambda: (tf.config.experimental.get_memory_info("GPU:0")["peak"], None),
    )


def pick_device(settings, ranks):
    """CUDA's number of this rank's GPU, None on the CPU; also sets TensorFlow's number of threads, precision and GPU.

    Must be called before any other use of TensorFlow. Raises UserError if CUDA is requested but not available, or if a node has more
    ranks than GPUs.
    """
    tf.config.threading.set_intra_op_parallelism_threads(settings.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    # With TF32, fp32 on a GPU would have a lower precision than on a CPU.
    tf.config.experimental.enable_tensor_float_32_execution(settings.precision == "tf32")
    problem = device_problem("cuda")
    if settings.device == "cuda" and problem:
        raise UserError(f"--device cuda, but {problem}; use --device cpu, or set up with TANDEM_DEVICE=cuda on a node with GPUs")
    if settings.device == "cpu" or problem:
        tf.config.set_visible_devices([], "GPU")
        return None
    gpus = tf.config.list_physical_devices("GPU")
    index = gpu_for(len(gpus), ranks, settings.gpu_order)
    tf.config.set_visible_devices([gpus[index]], "GPU")
    return index


def build(settings, ranks):
    """The model. Parameters are set before training; the random seed is for dropout.

    Raises UserError for dropout that would be drawn again, and not be the same.
    """
    if settings.recompute and settings.dropout:
        raise UserError("--recompute with --dropout: TensorFlow would draw other numbers in the backward pass; leave one of them out")
    tf.random.set_seed(settings.seed * 100_003 + ranks.rank)
    return Model(workload_of(settings).model, settings.precision, settings.recompute)


def losses(logits, targets):
    """Cross entropies (…): logits (…, classes), targets (…) or probabilities (…, classes)."""
    if targets.dtype.is_integer:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
    # softmax_cross_entropy_with_logits has a wrong gradient for probabilities that do not add up to 1, such as random ones.
    return -tf.reduce_sum(targets * tf.nn.log_softmax(logits), -1)


def weighted_loss(logits, targets, weights):
    return tf.reduce_sum(losses(logits, targets) * weights)


def summed(loss, samples, parameters, num_parts):
    """loss(*micro-batch), added up over the micro-batches into which samples are cut: arrays with samples along the first axis.

    To a tape the sum is one operation. Its gradients by the parameters are computed one micro-batch after the other, so that the
    activations of only one are held.
    """
    if num_parts == 1:
        return loss(*samples)

    def add(sums, part):
        with tf.GradientTape() as tape:
            value = loss(*part)
        return [total + added for total, added in zip(sums, (value, *tape.gradient(value, parameters)), strict=True)]

    @tf.custom_gradient
    def computed():
        parts = [tf.reshape(array, (num_parts, -1, *array.shape[1:])) for array in samples]
        zeros = [tf.zeros((), parameters[0].dtype), *map(tf.zeros_like, parameters)]
        total, *gradients = tf.foldl(add, parts, zeros, parallel_iterations=1)
        by_parameter = {parameter.ref(): gradient for parameter, gradient in zip(parameters, gradients, strict=True)}
        return total, lambda scale, variables: ([], [scale * by_parameter[variable.ref()] for variable in variables])

    return computed()


class Optimizer(tf.Module):
    """SGD with momentum, or Adam, with the update rules of common/model/conventions.py.

    TensorFlow's SGD accumulates learning_rate * gradient, which changes the effective momentum during warm-up (Goyal et al. 2017,
    arXiv:1706.02677, remark 2). Its Adam adds epsilon before bias correction, unlike algorithm 1 of the paper.
    """

    def __init__(self, settings, parameters):
        super().__init__()
        self.momentum = settings.momentum
        # By parameter, noted where a step is traced: between the operations of a traced step there is no Python.
        self.gradient_bytes = {}
        self.prefixes = ("adam_mean", "adam_square", "adam_step") if settings.optimizer == "adam" else ("momentum",)
        self.state = {
            f"{prefix}/{name}": tf.Variable(tf.zeros((), tf.float32) if prefix == "adam_step" else tf.zeros_like(value))
            for prefix in self.prefixes
            for name, value in parameters.items()
        }

    def step(self, parameters, gradients, learning_rate):
        for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
            self.update(name, parameter, gradient, learning_rate)

    def update(self, name, parameter, gradient, learning_rate):
        """Updates one parameter with a fused operation; `learning_rate` is a tensor of the parameter's type."""
        gradient = tf.convert_to_tensor(gradient)
        shared = {"var": parameter.handle, "grad": gradient, "lr": learning_rate}
        # Of a parameter's shape, since a traced gradient may have an unknown one.
        self.gradient_bytes[name] = parameter.shape.num_elements() * gradient.dtype.size
        if self.prefixes == ("momentum",):
            velocity = self.state[f"momentum/{name}"]
            momentum = tf.constant(self.momentum, gradient.dtype)
            tf.raw_ops.ResourceApplyMomentum(accum=velocity.handle, momentum=momentum, **shared)
        else:
            self._adam(name, gradient, shared)

    def _adam(self, name, gradient, shared):
        mean, square, step = (self.state[f"{prefix}/{name}"] for prefix in self.prefixes)
        beta1, beta2 = (tf.constant(beta, gradient.dtype) for beta in conventions.ADAM_BETAS)
        step.assign_add(1)
        num_steps = tf.cast(step, gradient.dtype)
        powers = {"beta1_power": beta1**num_steps, "beta2_power": beta2**num_steps}
        # The operation adds epsilon before bias correction; the factor makes it equal to adding ADAM_EPSILON after it.
        epsilon = conventions.ADAM_EPSILON * tf.sqrt(1 - powers["beta2_power"])
        tf.raw_ops.ResourceApplyAdam(m=mean.handle, v=square.handle, beta1=beta1, beta2=beta2, epsilon=epsilon, **powers, **shared)


def tensors(batches, model):
    """(inputs, targets, weights, learning rate) of the batches as tensors; the learning rate in the model's precision."""
    dtype = next(iter(model.parameters.values())).dtype
    for batch in batches:
        yield *(tf.convert_to_tensor(array) for array in batch[:3]), tf.constant(batch.learning_rate, dtype)


def evaluate(model, batches):
    """Totals of the batches, for every TensorFlow backend."""
    totals = np.zeros(3)
    for inputs, targets, weights, _ in tensors(batches, model):
        totals += _totals(model, inputs, targets, weights).numpy()
    return Totals(*totals.tolist())


@tf.function(reduce_retracing=True)
def _totals(model, inputs, targets, weights):
    logits = model.forward(model.parameters, inputs, False)
    correct = tf.cast(tf.argmax(logits, -1) == targets, weights.dtype) * weights
    return tf.cast(tf.stack([weighted_loss(logits, targets, weights), tf.reduce_sum(correct), tf.reduce_sum(weights)]), tf.float64)


def state(model, optimizer):
    """Parameters and, unless `optimizer` is None, optimizer state, as arrays in the names and layouts of weights.py."""
    named = model.parameters | (optimizer.state if optimizer else {})
    return {name: as_array(name.rpartition("/")[2], value.numpy()) for name, value in named.items()}


def restore(model, optimizer, state):
    """Loads a state into the model and its optimizer; optimizer state that it lacks is set to 0."""
    for name, variable in (model.parameters | optimizer.state).items():
        if name in state:
            variable.assign(as_variable(name.rpartition("/")[2], state[name]))
        else:
            variable.assign(tf.zeros_like(variable))


def as_variable(name, array):
    """A parameter of weights.py, or its optimizer state, in TensorFlow's layout."""
    if name in TABLES or not array.ndim:
        return array
    if name in families.FLATTENED:
        array = families.flattened_channels_last(name, array)
    return np.ascontiguousarray(array.transpose(AXES[array.ndim]))


def as_array(name, array):
    """The inverse of `as_variable`."""
    if name in TABLES or not array.ndim:
        return array
    array = array.transpose(np.argsort(AXES[array.ndim]))
    if name in families.FLATTENED:
        array = families.flattened_channels_first(name, array)
    return np.ascontiguousarray(array)


def remove_generated_files():
    """Removes the code that AutoGraph wrote into the temporary folder, as it would itself when the interpreter is finalized."""
    for name, module in list(sys.modules.items()):
        if name.startswith("__autograph_generated_file"):
            Path(module.__file__).unlink(missing_ok=True)


@contextlib.contextmanager
def memory(model, optimizer):
    """The context of Trainer.memory."""
    parameters, state = size_of(model.parameters.values()), size_of(optimizer.state.values())
    yield {point: Held(parameters, sum(optimizer.gradient_bytes.values()) if point == "after_backward" else 0, state) for point in POINTS}


def size_of(tensors):
    """Bytes of tensors or variables."""
    return sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in tensors)

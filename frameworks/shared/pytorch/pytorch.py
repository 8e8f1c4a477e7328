"""The models in PyTorch, and the code shared by all PyTorch backends."""

import contextlib
import functools
import math
import os
import shutil

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear, scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

from common.errors import UserError
from common.model import conventions, families
from common.model.decoder import rotary_tables
from common.process.binding import gpu_for
from common.process.gpus import version_text
from common.trainer import POINTS, Device, GpuMemory, Held, Totals
from common.workloads import workload_of
from frameworks.shared.pytorch import process_group, resnet
from frameworks.shared.pytorch.layers import Convolution, autocast

# Silences the messages of PyTorch's profiler.
os.environ.setdefault("KINETO_LOG_LEVEL", "6")

# Of parameters, their gradients and the loss.
DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.float32, "tf32": torch.float32}


class Cnn(nn.Module):
    """The CNN of common/model/cnn.py: images (samples, height, width) -> (samples, classes) logits."""

    mixed = False

    def __init__(self, model, dropout):
        super().__init__()
        first, second = model.channels
        self.conv1 = Convolution(1, first, model.window)
        self.conv2 = Convolution(first, second, model.window)
        self.pooling = model.pooling
        self.dense1 = nn.Linear(math.prod(model.pooled_shape), model.hidden)
        self.dense2 = nn.Linear(model.hidden, model.num_classes)
        rates = conventions.CNN_DROPOUT if dropout else (0.0, 0.0)
        self.dropout1, self.dropout2 = nn.Dropout(rates[0]), nn.Dropout(rates[1])

    @autocast
    def forward(self, x):
        for part in self.parts():
            x = part(x)
        return x

    def parts(self):
        """The functions that compute the parts of the model. Between them, images are as they lie in memory: channels last."""
        return self.first, self.second, self.hidden, self.dense2

    def first(self, x):
        return self.conv1(x.unsqueeze(1)).relu().permute(0, 2, 3, 1)

    def second(self, x):
        x = self.conv2(x.permute(0, 3, 1, 2)).relu()
        return self.dropout1(nn.functional.max_pool2d(x, self.pooling)).permute(0, 2, 3, 1)

    def hidden(self, x):
        # In the order of channels-last memory flattening copies nothing.
        return self.dropout2(self.dense1(x.flatten(1)).relu())


class Block(nn.Module):
    """A decoder layer: attention and SwiGLU with residual connections; (samples, context, width) in and out."""

    def __init__(self, model):
        super().__init__()
        width, hidden = model.width, model.hidden
        self.head_width = model.head_width
        self.attention_norm = nn.RMSNorm(width, eps=conventions.RMS_NORM_EPSILON)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.attended = nn.Linear(width, width, bias=False)
        self.feed_norm = nn.RMSNorm(width, eps=conventions.RMS_NORM_EPSILON)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, rotary):
        return self.feed(self.attend(x, rotary))

    def attend(self, x, rotary):
        normed = self.attention_norm(x)
        # Of tensor parallelism each rank has some of the heads.
        heads = (projection(normed).unflatten(-1, (-1, self.head_width)) for projection in (self.query, self.key, self.value))
        query, key, value = (tensor.transpose(1, 2) for tensor in heads)
        mixed = scaled_dot_product_attention(rotated(query, rotary), rotated(key, rotary), value, is_causal=True)
        return x + self.attended(mixed.transpose(1, 2).flatten(2))

    def feed(self, x):
        normed = self.feed_norm(x)
        return x + self.down(silu(self.gate(normed)) * self.up(normed))


def rotated(x, rotary):
    """Rotary embeddings (common/model/decoder.py) applied to (samples, heads, context, head width)."""
    cosine, sine = rotary
    real, imaginary = x.chunk(2, dim=-1)
    return torch.cat((real * cosine - imaginary * sine, real * sine + imaginary * cosine), dim=-1)


class Decoder(nn.Module):
    """The decoder-only Transformer of common/model/decoder.py: tokens (samples, context) -> logits (samples, context, tokens)."""

    mixed = False

    def __init__(self, model, _):
        super().__init__()
        self.description = model
        self.embedding = nn.Embedding(model.num_tokens, model.width)
        self.blocks = nn.ModuleList([Block(model) for _ in range(model.num_layers)])
        self.norm = nn.RMSNorm(model.width, eps=conventions.RMS_NORM_EPSILON)
        self.head = None if model.tied else nn.Linear(model.width, model.num_tokens, bias=False)
        cosine, sine = (torch.from_numpy(table) for table in rotary_tables(model))
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    @autocast
    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, (self.cosine, self.sine))
        return self.logits(x)

    def logits(self, x):
        normed = self.norm(x)
        return self.head(normed) if self.head else linear(normed, self.embedding.weight)

    def layers(self):
        """The layers that keep no activations with --recompute."""
        return self.blocks

    def parts(self):
        """The functions that compute the parts of the model."""
        rotary = self.cosine, self.sine
        halves = (half for block in self.blocks for half in (functools.partial(block.attend, rotary=rotary), block.feed))
        return self.embedding, *halves, self.logits


class EncoderDecoder(nn.Module):
    """PyTorch's own nn.Transformer: (samples, source and target positions, width) -> (samples, width, target positions)."""

    mixed = False

    def __init__(self, model, dropout):
        super().__init__()
        transformer = nn.Transformer(
            model.width, model.num_heads, model.num_layers, model.num_layers, model.hidden, batch_first=True,
            dropout=conventions.ENCODER_DECODER_DROPOUT if dropout else 0.0, layer_norm_eps=conventions.LAYER_NORM_EPSILON,
        )  # fmt: skip
        self.encoder, self.decoder, self.source_length = transformer.encoder, transformer.decoder, model.source_length

    @autocast
    def forward(self, x):
        return self.decoder(x[:, self.source_length :], self.encoder(x[:, : self.source_length])).transpose(1, 2)

    def layers(self):
        """The layers that keep no activations with --recompute."""
        return *self.encoder.layers, *self.decoder.layers


MODELS = {families.Cnn: Cnn, families.Decoder: Decoder, families.EncoderDecoder: EncoderDecoder, families.ResNet50: resnet.ResNet50}


def device_problem(device):
    """Why PyTorch cannot compute on `cpu` or `cuda` here; None if it can."""
    if device == "cuda" and not torch.backends.cuda.is_built():
        return "this PyTorch has no CUDA"
    return "PyTorch finds no GPU" if device == "cuda" and not torch.cuda.device_count() else None


def describe_device(device):
    """The Device of a torch.device."""
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if device.type == "cuda" else None
    cudnn = version_text(torch.backends.cudnn.version()) if device.type == "cuda" else None
    memory = gpu_memory(device) if device.type == "cuda" else None
    built_with = torch.backends.cuda.is_built(), torch.version.cuda, cudnn, nccl
    return Device(device.type, device.index, *built_with, functools.partial(product, device), memory)


def product(device, precision, size):
    """The `product` of a Device."""
    dtype = {"fp64": torch.float64, "bf16": torch.bfloat16}.get(precision, torch.float32)
    # A GPU multiplies constants faster than other numbers.
    matrix = torch.randn(size, size, device=device, dtype=dtype)
    out = torch.empty_like(matrix)

    def multiply():
        torch.mm(matrix, matrix, out=out)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return multiply


def gpu_memory(device):
    """The GpuMemory of this process on its GPU."""
    return GpuMemory(
        lambda: torch.cuda.reset_peak_memory_stats(device),
        lambda: (torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)),
    )


def pick_device(settings, ranks):
    """The device of this rank; also sets PyTorch's number of threads and precision.

    Raises UserError if CUDA is requested but not available, or if a node has more ranks than GPUs.
    """
    torch.set_num_threads(settings.threads)
    # With TF32, fp32 on a GPU would have a lower precision than on a CPU.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = settings.precision == "tf32"
    problem = device_problem("cuda")
    if settings.device == "cpu" or (settings.device == "auto" and problem):
        return torch.device("cpu")
    if problem:
        raise UserError(f"--device cuda, but {problem}; use --device cpu, or set up with TANDEM_DEVICE=cuda on a node with GPUs")
    device = torch.device("cuda", gpu_for(torch.cuda.device_count(), ranks, settings.gpu_order, settings.share_gpu))
    torch.cuda.set_device(device)
    return device


def build(settings, device, ranks):
    """The model on its device. Parameters are set before training; the random seed is for dropout."""
    torch.manual_seed(settings.seed * 100_003 + ranks.rank)
    model = workload_of(settings).model
    module = families.implementation_of(model, MODELS, "PyTorch")(model, settings.dropout)
    module = module.to(device=device, dtype=DTYPES[settings.precision])
    for parameter in module.parameters():
        # Uninitialized values may overflow in the warm-up step. DeepSpeed would skip that step and allocate no optimizer state.
        nn.init.zeros_(parameter)
    module.mixed = settings.precision == "bf16"
    if settings.recompute:
        for layer in module.layers():
            # Its class, since copies of a module, such as DataParallel's, keep it and their own parameters.
            layer.__class__ = recomputed(type(layer))
    if settings.compile:
        compile_forward(module)
    return module


@functools.cache
def recomputed(layer_class):
    """A class of layers whose forward pass is a `recomputed_function`."""
    return type(layer_class.__name__, (layer_class,), {"forward": recomputed_function(layer_class.forward)})


def recomputed_function(function):
    """A function that keeps its arguments alone for the backward pass, which computes the rest again."""

    def computed(*arguments, **settings):
        return checkpoint(function, *arguments, use_reentrant=False, **settings)

    return computed


def compile_forward(module):
    """Replaces a module's forward by one that is compiled, with its backward, at the first training step.

    Raises UserError if the C++ compiler that torch.compile calls is missing.
    """
    compiler = os.environ.get("CXX", "g++")
    if not shutil.which(compiler):
        raise UserError(f"--compile requires a C++ compiler, but {compiler} was not found; install it, or set CXX, e.g. CXX=clang++")
    plain = module.forward
    # No graph breaks: they are slower and may be compiled later, on the clock.
    compiled = torch.compile(plain, fullgraph=True, dynamic=False)

    def forward(inputs):
        # The size of evaluation batches is known only when the data has been read, on the clock, too late to compile for it.
        return compiled(inputs) if module.training else plain(inputs)

    module.forward = forward


def weighted_loss(logits, targets, weights):
    """Weighted sum of cross entropies: logits (…, classes), targets (…) or probabilities (…, classes), weights (…).

    The loss is of the type of the weights, also of logits in bfloat16.
    """
    losses = cross_entropy(logits.to(weights.dtype).flatten(0, -2), targets.flatten(0, weights.dim() - 1), reduction="none")
    return (losses * weights.flatten()).sum()


def optimizer_for(settings, model):
    """The optimizer of the settings, with all relevant defaults explicit; fused, as TensorFlow's update operations are."""
    if settings.optimizer == "adam":
        return torch.optim.Adam(
            model.parameters(), lr=settings.learning_rate, betas=conventions.ADAM_BETAS, eps=conventions.ADAM_EPSILON, weight_decay=0,
            fused=True,
        )  # fmt: skip
    return torch.optim.SGD(
        model.parameters(), lr=settings.learning_rate, momentum=settings.momentum, dampening=0, nesterov=False, weight_decay=0,
        fused=True,
    )  # fmt: skip


def unfused(optimizer):
    """The optimizer with PyTorch's own choice of kernels: its fused SGD does not take tensors that are sharded (DTensor)."""
    for group in optimizer.param_groups:
        group["fused"] = None
    return optimizer


def set_learning_rate(optimizer, learning_rate):
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


def tensors(batches, device):
    """(inputs, targets, weights, learning rate) of the batches, with tensors on the device."""
    for batch in batches:
        yield *(on_device(torch.from_numpy(array), device) for array in batch[:3]), batch.learning_rate


def on_device(tensor, device):
    """A tensor of a batch on the device. The copy to a GPU takes place while others compute, which only pinned memory allows."""
    return tensor.pin_memory().to(device, non_blocking=True) if torch.device(device).type == "cuda" else tensor.to(device)


def steps(batches, accumulate, device):
    """(micro-batches, learning rate) of each step; of each of the `accumulate` micro-batches (inputs, targets, weights, is last)."""
    for *samples, learning_rate in tensors(batches, device):
        parts = zip(*(tensor.chunk(accumulate) for tensor in samples), strict=True)
        yield [(*part, number == accumulate) for number, part in enumerate(parts, 1)], learning_rate


@torch.no_grad()
def evaluate(model, batches, device):
    """Totals of the batches, for every PyTorch backend."""
    model.eval()
    totals = torch.zeros(3, dtype=torch.float64, device=device)
    for inputs, targets, weights, _ in tensors(batches, device):
        totals += totals_of(model(inputs), targets, weights)
    return Totals(*totals.tolist())


def totals_of(logits, targets, weights):
    """The Totals of one batch as a tensor."""
    correct = (logits.argmax(-1) == targets) * weights
    return torch.stack([weighted_loss(logits, targets, weights), correct.sum(), weights.sum()])


# Optimizer state: PyTorch's key -> prefix of its name in a state, PREFIX/PARAMETER.
OPTIMIZER_STATE = {"momentum_buffer": "momentum", "exp_avg": "adam_mean", "exp_avg_sq": "adam_square", "step": "adam_step"}


def state(model, optimizer):
    """Parameters and, unless `optimizer` is None, optimizer state, as arrays in the names and layouts of weights.py.

    They are gathered from the shards of all ranks, if there are any. Then all ranks call this.
    """
    reshard(model)
    parameters, optimizer_state, of_parameters = {}, {}, local(optimizer).state if optimizer else {}
    for name, parameter in model.named_parameters():
        parameters[name] = as_array(name, whole(parameter))
        for key, value in of_parameters.get(parameter, {}).items():
            if value is not None:
                optimizer_state[f"{OPTIMIZER_STATE[key]}/{name}"] = as_array(name, whole(torch.as_tensor(value)))
    # Of a ZeroRedundancyOptimizer each rank has the state of some parameters.
    if hasattr(optimizer, "consolidate_state_dict"):
        optimizer_state = process_group.united(optimizer_state)
    return parameters | optimizer_state


@torch.no_grad()
def restore(model, optimizer, state):
    """Loads a state into the model, or this rank's shards of it, and its optimizer; optimizer state that it lacks is set to 0."""
    reshard(model)
    optimizer = local(optimizer)
    updated = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    for name, parameter in model.named_parameters():
        parameter.copy_(placed(as_tensor(name, state[name]), parameter))
        if parameter not in updated:
            continue
        parameter_state = optimizer.state[parameter]
        for key, prefix in OPTIMIZER_STATE.items():
            if f"{prefix}/{name}" in state:
                value = as_tensor(name, state[f"{prefix}/{name}"])
                parameter_state[key] = value.to(parameter.device) if key == "step" else placed(value, parameter)
            elif parameter_state.get(key) is not None:
                # In place, since its memory was allocated off the clock.
                parameter_state[key].zero_()


def local(optimizer):
    """The optimizer that updates this rank's parameters: what the wrappers of torch.distributed.optim have in `optim`, or itself."""
    return getattr(optimizer, "optim", optimizer)


def reshard(model):
    """Frees whole parameters that FSDP has gathered, such as for an evaluation, so that the model's parameters are the shards."""
    for part in model.modules():
        if hasattr(part, "reshard"):
            part.reshard()


def whole(tensor):
    """A tensor gathered from its shards, where it has any."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def placed(tensor, parameter):
    """A whole tensor with a parameter's type, device and, where it has any, shards."""
    tensor = tensor.to(parameter.device, parameter.dtype)
    if not hasattr(parameter, "placements"):
        return tensor
    # Imported here to keep the start of every run short.
    from torch.distributed.tensor import distribute_tensor

    # Each rank has the whole tensor and takes its shard of it.
    return distribute_tensor(tensor, parameter.device_mesh, parameter.placements, src_data_rank=None)


def as_array(name, tensor):
    """The parameter of that name, or its optimizer state, in the layout of weights.py: channels before height and width."""
    array = tensor.detach().cpu().numpy()
    if array.ndim == 4:
        array = array.transpose(0, 3, 1, 2)
    elif array.ndim and name in families.FLATTENED:
        array = families.flattened_channels_first(name, array)
    return np.array(array, order="C")


def as_tensor(name, array):
    """The inverse of `as_array`; a copy."""
    if array.ndim == 4:
        array = array.transpose(0, 2, 3, 1)
    elif array.ndim and name in families.FLATTENED:
        array = families.flattened_channels_last(name, array)
    return torch.tensor(np.array(array, order="C"))


@contextlib.contextmanager
def memory(module, optimizer, held=None):
    """The context of Trainer.memory. `held()`: what the rank holds; default: the module's parameters and the optimizer's state."""
    reshard(module)
    optimizer, held_at = local(optimizer), {}
    # FSDP holds whole parameters, which then are the module's, beside the shards.
    shards = list(module.parameters())
    held = held or (lambda: held_by([*shards, *module.parameters()], optimizer))

    def note(point):
        held_at[point] = held()

    hooks = (module.register_forward_hook, optimizer.register_step_pre_hook, optimizer.register_step_post_hook)
    with contextlib.ExitStack() as registered:
        for point, register in zip(POINTS, hooks, strict=True):
            registered.callback(register(lambda *_, point=point: note(point)).remove)
        yield held_at


def held_by(parameters, optimizer, gradients=(), masters=()):
    """The Held of parameters, their gradients and others, and of an optimizer with its master parameters."""
    gradients = [*gradients, *(parameter.grad for parameter in parameters if parameter.grad is not None)]
    state = [value for of_parameter in optimizer.state.values() for value in of_parameter.values() if torch.is_tensor(value)]
    return Held(storage_bytes(parameters), storage_bytes(gradients), storage_bytes([*state, *masters]))


def storage_bytes(tensors):
    """Bytes of the memory of tensors, of which several may be views; of a sharded one, this rank's part."""
    local = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
    return sum({(storage := tensor.untyped_storage()).data_ptr(): storage.nbytes() for tensor in local}.values())

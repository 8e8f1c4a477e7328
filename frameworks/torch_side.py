"""The models in PyTorch, and what all backends on PyTorch share."""

import os
import shutil

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

from common import conventions, models
from common.binding import gpu_for, gpus_chosen
from common.errors import UserError
from common.trainer import Totals
from common.workloads import workload_of

# PyTorch's profiler would print when it begins and ends.
os.environ.setdefault("KINETO_LOG_LEVEL", "6")

DTYPES = {"fp32": torch.float32, "fp64": torch.float64}


class Convolution(nn.Module):
    """A convolution whose weight is kept as (out, height, width, in).

    Seen as OIHW it is channels-last, on which convolutions are faster; as it lies it is contiguous, as Horovod demands.
    """

    def __init__(self, num_inputs, num_outputs, size):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_outputs, size, size, num_inputs))
        self.bias = nn.Parameter(torch.empty(num_outputs))

    def forward(self, x):
        return nn.functional.conv2d(x, self.weight.permute(0, 3, 1, 2), self.bias)


class Cnn(nn.Module):
    """The CNN of common/models.py: (samples, 28, 28) -> (samples, 10) logits."""

    def __init__(self, _, dropout):
        super().__init__()
        self.conv1 = Convolution(1, 32, 3)
        self.conv2 = Convolution(32, 64, 3)
        self.dense1 = nn.Linear(64 * 12 * 12, 128)
        self.dense2 = nn.Linear(128, 10)
        rates = conventions.CNN_DROPOUT if dropout else (0.0, 0.0)
        self.dropout1, self.dropout2 = nn.Dropout(rates[0]), nn.Dropout(rates[1])

    def forward(self, x):
        x = self.conv1(x.unsqueeze(1)).relu()
        x = self.conv2(x).relu()
        x = self.dropout1(nn.functional.max_pool2d(x, 2))
        x = self.dropout2(self.dense1(x.flatten(1)).relu())
        return self.dense2(x)


class Block(nn.Module):
    """One layer of the decoder: attention and SwiGLU, each added to what comes in, (samples, context, width)."""

    def __init__(self, model):
        super().__init__()
        width, hidden = model.width, model.hidden
        self.heads = (model.num_heads, model.head_width)
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
        normed = self.attention_norm(x)
        query, key, value = (each(normed).unflatten(-1, self.heads).transpose(1, 2) for each in (self.query, self.key, self.value))
        mixed = scaled_dot_product_attention(rotated(query, rotary), rotated(key, rotary), value, is_causal=True)
        x = x + self.attended(mixed.transpose(1, 2).flatten(2))
        normed = self.feed_norm(x)
        return x + self.down(silu(self.gate(normed)) * self.up(normed))


def rotated(x, rotary):
    """Rotary positions (common/models.py) put on (samples, heads, context, head width)."""
    cosine, sine = rotary
    real, imaginary = x.chunk(2, dim=-1)
    return torch.cat((real * cosine - imaginary * sine, real * sine + imaginary * cosine), dim=-1)


class Decoder(nn.Module):
    """The decoder-only Transformer of common/models.py: tokens (samples, context) -> logits (samples, context, tokens)."""

    def __init__(self, model, _):
        super().__init__()
        self.embedding = nn.Embedding(model.num_tokens, model.width)
        self.blocks = nn.ModuleList([Block(model) for _ in range(model.num_layers)])
        self.norm = nn.RMSNorm(model.width, eps=conventions.RMS_NORM_EPSILON)
        self.head = nn.Linear(model.width, model.num_tokens, bias=False)
        cosine, sine = (torch.from_numpy(table) for table in models.rotary_tables(model))
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, (self.cosine, self.sine))
        return self.head(self.norm(x))


class EncoderDecoder(nn.Module):
    """PyTorch's own nn.Transformer: (samples, source and target positions, width) -> (samples, width, target positions)."""

    def __init__(self, model, dropout):
        super().__init__()
        net = nn.Transformer(
            model.width, model.num_heads, model.num_layers, model.num_layers, model.hidden, batch_first=True,
            dropout=conventions.ENCODER_DECODER_DROPOUT if dropout else 0.0, layer_norm_eps=conventions.LAYER_NORM_EPSILON,
        )  # fmt: skip
        self.encoder, self.decoder, self.source_length = net.encoder, net.decoder, model.source_length

    def forward(self, x):
        return self.decoder(x[:, self.source_length :], self.encoder(x[:, : self.source_length])).transpose(1, 2)


MODELS = {models.Cnn: Cnn, models.Decoder: Decoder, models.EncoderDecoder: EncoderDecoder}


def pick_device(settings, ranks):
    """The device of this rank, with PyTorch set to this run's threads and arithmetic.

    Raises UserError where CUDA is asked for and not there, or a node has more ranks than GPUs.
    """
    torch.set_num_threads(settings.threads)
    # TF32 would make a GPU's fp32 another precision than a CPU's.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    num_gpus = torch.cuda.device_count()
    if settings.device == "cpu" or (settings.device == "auto" and num_gpus == 0):
        return torch.device("cpu")
    if num_gpus == 0:
        raise UserError("--device cuda, but PyTorch finds no GPU here; use --device cpu, or install the CUDA build of PyTorch")
    device = torch.device("cuda", gpu_for(num_gpus, ranks.local_rank, ranks.local_size, settings.gpu_order, gpus_chosen(os.environ)))
    torch.cuda.set_device(device)
    return device


def build(settings, device, ranks):
    """The model on its device. Its parameters are overwritten before training; random numbers are for dropout alone."""
    torch.manual_seed(settings.seed * 100_003 + ranks.rank)
    model = workload_of(settings).model
    net = MODELS[type(model)](model, settings.dropout).to(device=device, dtype=DTYPES[settings.precision])
    for parameter in net.parameters():
        # Whatever lay in memory may overflow in the warm-up step, which DeepSpeed would then skip, and with it make no slots.
        nn.init.zeros_(parameter)
    if settings.compile:
        compile_forward(net)
    return net


def compile_forward(net):
    """Has a model's forward compiled, with its backward, when it first trains.

    Raises UserError where there is no compiler of C++ under the name that torch.compile calls.
    """
    compiler = os.environ.get("CXX", "g++")
    if not shutil.which(compiler):
        raise UserError(f"--compile needs a C++ compiler, and there is no {compiler} here; install one, or name yours, as in CXX=clang++")
    plain = net.forward
    # In one piece or not at all: what is left out of it would be slower, and could be compiled later, on the clock.
    compiled = torch.compile(plain, fullgraph=True, dynamic=False)

    def forward(inputs):
        # How large the batches of an evaluation are is known when the data is read, on the clock, which is too late to compile for them.
        return compiled(inputs) if net.training else plain(inputs)

    net.forward = forward


def weighted_loss(logits, targets, weights):
    """The sum of the weighted cross entropies: logits (…, classes), targets (…) or probabilities (…, classes), weights (…)."""
    losses = cross_entropy(logits.flatten(0, -2), targets.flatten(0, weights.dim() - 1), reduction="none")
    return (losses * weights.flatten()).sum()


def optimizer_for(settings, model):
    """The optimizer of the settings, with every default that matters written out."""
    if settings.optimizer == "adam":
        return torch.optim.Adam(
            model.parameters(), lr=settings.learning_rate, betas=conventions.ADAM_BETAS, eps=conventions.ADAM_EPSILON, weight_decay=0
        )
    return torch.optim.SGD(
        model.parameters(), lr=settings.learning_rate, momentum=settings.momentum, dampening=0, nesterov=False, weight_decay=0
    )


def set_learning_rate(optimizer, rate):
    for group in optimizer.param_groups:
        group["lr"] = rate


def tensors(batches, device):
    """The batches' inputs, targets and weights as tensors on the device, and their learning rate."""
    for batch in batches:
        yield *(torch.from_numpy(array).to(device, non_blocking=True) for array in batch[:3]), batch.learning_rate


@torch.no_grad()
def evaluate(model, batches, device):
    """Totals of the batches: the evaluation of every backend on PyTorch."""
    model.eval()
    totals = torch.zeros(3, dtype=torch.float64, device=device)
    for inputs, targets, weights, _ in tensors(batches, device):
        logits = model(inputs)
        correct = (logits.argmax(-1) == targets) * weights
        totals += torch.stack([weighted_loss(logits, targets, weights), correct.sum(), weights.sum()])
    return Totals(*totals.tolist())


# Optimizer slots as PyTorch names them -> as a state names them: SLOT/PARAMETER.
SLOTS = {"momentum_buffer": "momentum", "exp_avg": "adam_mean", "exp_avg_sq": "adam_square", "step": "adam_step"}


def state(model, optimizer):
    """Parameters, and an optimizer's slots, as arrays by the names and in the layouts of weights.py."""
    found = {}
    for name, parameter in model.named_parameters():
        found[name] = as_array(parameter)
        for slot, value in optimizer.state.get(parameter, {}).items() if optimizer else ():
            if value is not None:
                found[f"{SLOTS[slot]}/{name}"] = as_array(torch.as_tensor(value))
    return found


@torch.no_grad()
def restore(model, optimizer, state):
    """Copies a state into the model and its optimizer; slots that the state lacks start anew."""
    optimizer.state.clear()
    for name, parameter in model.named_parameters():
        parameter.copy_(as_tensor(state[name]))
        for slot, ours in SLOTS.items():
            if f"{ours}/{name}" in state:
                value = as_tensor(state[f"{ours}/{name}"])
                optimizer.state[parameter][slot] = value if slot == "step" else value.to(parameter)


def as_array(tensor):
    """A parameter or a slot of it in the layout of weights.py: convolutions OIHW."""
    array = tensor.detach().cpu().numpy()
    return np.array(array.transpose(0, 3, 1, 2) if array.ndim == 4 else array, order="C")


def as_tensor(array):
    """The inverse of `as_array`; a copy."""
    return torch.tensor(np.array(array.transpose(0, 2, 3, 1), order="C") if array.ndim == 4 else array)

"""The models in PyTorch, and what all backends on PyTorch share."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from common import workloads
from common.errors import UserError
from common.trainer import Totals

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
    """The CNN of workloads.py: (samples, 28, 28) -> (samples, 10) logits."""

    def __init__(self, dropout):
        super().__init__()
        self.conv1 = Convolution(1, 32, 3)
        self.conv2 = Convolution(32, 64, 3)
        self.dense1 = nn.Linear(64 * 12 * 12, 128)
        self.dense2 = nn.Linear(128, 10)
        rates = workloads.CNN_DROPOUT if dropout else (0.0, 0.0)
        self.dropout1, self.dropout2 = nn.Dropout(rates[0]), nn.Dropout(rates[1])

    def forward(self, x):
        x = self.conv1(x.unsqueeze(1)).relu()
        x = self.conv2(x).relu()
        x = self.dropout1(nn.functional.max_pool2d(x, 2))
        x = self.dropout2(self.dense1(x.flatten(1)).relu())
        return self.dense2(x)


MODELS = {"cnn": Cnn}


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
    if 1 < num_gpus < ranks.local_size:
        raise UserError(f"{ranks.local_size} ranks on a node with {num_gpus} GPUs; use at most {num_gpus} ranks per node, or --device cpu")
    # One visible GPU: the launcher has given each rank its own.
    device = torch.device("cuda", ranks.local_rank % num_gpus)
    torch.cuda.set_device(device)
    return device


def build(settings, device, ranks):
    """The model on its device. Its parameters are overwritten before training; random numbers are for dropout alone."""
    torch.manual_seed(settings.seed * 100_003 + ranks.rank)
    model = MODELS[settings.workload](settings.dropout)
    return model.to(device=device, dtype=DTYPES[settings.precision])


def weighted_loss(logits, targets, weights):
    return (cross_entropy(logits, targets, reduction="none") * weights).sum()


def optimizer_for(settings, model):
    """The optimizer of the settings, with every default that matters written out."""
    if settings.optimizer == "adam":
        return torch.optim.Adam(
            model.parameters(), lr=settings.learning_rate, betas=workloads.ADAM_BETAS, eps=workloads.ADAM_EPSILON, weight_decay=0
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
        correct = (logits.argmax(1) == targets) * weights
        totals += torch.stack([weighted_loss(logits, targets, weights), correct.sum(), weights.sum()])
    return Totals(*totals.tolist())


# Optimizer slots as PyTorch names them -> as a state names them: SLOT/PARAMETER.
SLOTS = {"momentum_buffer": "momentum", "exp_avg": "adam_mean", "exp_avg_sq": "adam_square", "step": "adam_step"}


def state(model, optimizer):
    """Parameters and optimizer slots as arrays, by the names and in the layouts of weights.py."""
    found = {}
    for name, parameter in model.named_parameters():
        found[name] = as_array(parameter)
        for slot, value in optimizer.state.get(parameter, {}).items():
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
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2) if array.ndim == 4 else array)


def as_tensor(array):
    """The inverse of `as_array`; a copy."""
    return torch.tensor(np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if array.ndim == 4 else array)

"""What in a user's file makes several ranks train otherwise than one process: found by small steps of the model and of its optimizer."""

import copy
import math
import pickle
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from common.command_line import shortened
from common.model import model_file, user_data
from common.model.description import Model
from common.model.model_file import ModelFile

# Relative, in float64.
TOLERANCE = 1e-9
# The factor of a loss with which its gradients exceed every limit.
LARGE = 1e6
NUM_OPTIMIZER_STEPS = 4
MAX_NAMED = 100


class Pass(NamedTuple):
    """What a forward and a backward pass of a batch give: the tensors of the outputs, the loss, and the gradients by name."""

    outputs: list[Any]
    loss: Any
    gradients: dict[str, Any]


def of_ranks(model: Model) -> str | None:
    """Says why the average of what ranks compute is not what one process computes of all their samples; None where nothing is found.

    Batch norm, whose statistics are those of a rank, is left out.
    """
    file = model.file_in("pytorch")
    module = _module(file)
    size = user_data.NUM_FIRST // 2
    batch, *halves = (user_data.in_precision(model.first_batch(*part), "fp64") for part in ((2 * size,), (size,), (size, size)))
    before = _attributes(module)
    whole, again = (_pass(file, module, batch) for _ in range(2))
    if _differ(whole.outputs, again.outputs):
        changed = shortened(", ".join(_changed(before, _attributes(module))), MAX_NAMED)
        return f"the model keeps {changed or 'a state'} from step to step, which is no buffer: each rank has its own"
    if _differ(whole.outputs, _pass(file, module, batch, seed=1).outputs):
        return "the model draws random numbers in training: those of a rank are its own"
    first, second = (_pass(file, module, half) for half in halves)
    joined = [_joined(*pair) for pair in zip(first.outputs, second.outputs, strict=True)]
    if any(expected is not None and _differ([output], [expected]) for output, expected in zip(whole.outputs, joined, strict=True)):
        return "the outputs of a sample depend on the other samples of its batch, of which a rank has a part"
    if _differ([whole.loss], [(first.loss + second.loss) / 2]):
        return "loss() of a batch is not the mean of those of its halves, which ranks compute"
    return _of_gradients(file, module, batch, halves)


def _of_gradients(file: ModelFile, module: Any, batch: Any, halves: list[Any]) -> str | None:
    """Says that something changes gradients within the backward pass, otherwise than in proportion."""
    hooked = [name for name, parameter in module.named_parameters() if parameter._backward_hooks or parameter._post_accumulate_grad_hooks]
    for factor in (1.0, LARGE):
        whole, first, second = (_pass(file, module, part, factor=factor).gradients for part in (batch, *halves))
        names = sorted(whole.keys() & first.keys() & second.keys())
        # All together: of a bias before a norm the gradient is rounding alone.
        if _differ([_flat(whole[name] for name in names)], [_flat((first[name] + second[name]) / 2 for name in names)]):
            where = f"hooks of {shortened(', '.join(hooked), MAX_NAMED)}" if hooked else "the model or loss()"
            return (
                f"the backward pass changes gradients before they are averaged over the ranks, as where they are clipped ({where}); "
                "CLIP_NORM clips the averaged gradient"
            )
    return None


def trained(model: Model) -> list[str]:
    """Returns the names of the parameters that are trained, in the order in which DDP numbers them."""
    return model_file.trained_parameters(model.file_in("pytorch"))


def of_optimizer(model: Model) -> str | None:
    """Says why the file's optimizer() does not train shards of parameters, or those of a rank, as it trains all; None where it does."""
    file = model.file_in("pytorch")
    if not file.has("optimizer"):
        return None
    whole = list(_updates(file, sharded=False))
    if any(whole) and not all(whole):
        return "optimizer() leaves the parameters as they are in some steps, as where it accumulates gradients; use --accumulate instead"
    try:
        shards = list(_updates(file, sharded=True))
    except Exception as problem:
        return f"optimizer() does not take shards of parameters, as this backend has them ({shortened(str(problem), MAX_NAMED)})"
    if any(_differ(*pair) for pair in zip(whole, shards, strict=True)):
        return "optimizer() updates a value by others, as by the norm of a parameter or of all, and this backend gives it a part of them"
    return None


def _updates(file: ModelFile, sharded: bool) -> Iterator[list[Any]]:
    """Yields the first halves of all parameters after each of some steps of the optimizer, or nothing where it has changed none.

    A `sharded` optimizer has these halves alone.
    """
    torch = model_file.torch()
    with model_file.generators_kept():
        parameters = [parameter for parameter in _module(file).parameters() if parameter.requires_grad]
        optimizer = file.call("optimizer", iter(parameters))
        leaves = [torch.nn.Parameter(_first_half(parameter).clone()) for parameter in parameters] if sharded else parameters
        leaf_of = dict(zip(parameters, leaves, strict=True))
        for group in optimizer.param_groups:
            group["params"] = [leaf_of[parameter] for parameter in group["params"]]
        for step in range(NUM_OPTIMIZER_STEPS):
            optimizer.zero_grad()
            before = [_first_half(leaf).clone() for leaf in leaves]
            model_file.seed_generators(step)
            for parameter, leaf in leaf_of.items():
                gradient = (LARGE if step % 2 else 1.0) * torch.randn_like(parameter)
                gradient = _first_half(gradient) if sharded else gradient
                leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient
            optimizer.step()
            updated = [leaf.detach() if sharded else _first_half(leaf) for leaf in leaves]
            yield [half.clone() for half in updated] if _differ(updated, before) else []


def _first_half(tensor: Any) -> Any:
    flat = tensor.detach().flatten()
    return flat[: (len(flat) + 1) // 2]


def _module(file: ModelFile) -> Any:
    """Builds the module in float64, without dropout, and with the norms of evaluation."""
    module, torch = model_file.build(file, seed=0).double(), model_file.torch()
    for layer in module.modules():
        if isinstance(layer, torch.nn.modules.dropout._DropoutNd) or getattr(layer, "running_mean", None) is not None:
            layer.eval()
        elif isinstance(layer, torch.nn.MultiheadAttention | torch.nn.RNNBase):
            layer.dropout = 0.0
    return module


def _pass(file: ModelFile, module: Any, batch: tuple[Any, Any], seed: int = 0, factor: float = 1.0) -> Pass:
    inputs, targets = copy.deepcopy(batch)
    module.zero_grad()
    with model_file.generators_kept():
        model_file.seed_generators(seed)
        outputs = file.attempt("model", module, inputs)
        loss = file.call("loss", outputs, targets).mean()
        (factor * loss).backward()
    gradients = {name: parameter.grad for name, parameter in module.named_parameters() if parameter.grad is not None}
    tensors: list[Any] = []
    user_data.mapped(lambda tensor: tensors.append(tensor.detach().clone()), outputs)
    return Pass(tensors, loss.detach(), gradients)


def _flat(tensors: Iterable[Any]) -> Any:
    return model_file.torch().cat([tensor.flatten() for tensor in tensors])


def _joined(first: Any, second: Any) -> Any:
    """Returns the outputs of the samples of two batches; None where the first axis is not theirs, or others are padded."""
    has_samples = first.dim() > 0 and len(first) == len(second) == user_data.NUM_FIRST // 2
    return model_file.torch().cat([first, second]) if has_samples and first.shape == second.shape else None


def _differ(tensors: Iterable[Any], others: Iterable[Any]) -> bool:
    """Whether tensors differ by more than rounding."""
    return any(_distance(*pair) > TOLERANCE for pair in zip(tensors, others, strict=True))


def _distance(tensor: Any, other: Any) -> float:
    """Returns the sum of the differences of two tensors, relative to that of the values."""
    if tensor.shape != other.shape:
        return math.inf
    difference = float((tensor.double() - other.double()).abs().sum())
    return difference / max(float(other.double().abs().sum()), 1e-300) if difference else 0.0


def _attributes(module: Any) -> dict[str, bytes]:
    """Returns the values of the layers' attributes by name, without parameters, buffers and layers."""
    values = {}
    for prefix, layer in module.named_modules():
        for name, value in vars(layer).items():
            if not name.startswith("_"):
                try:
                    values[f"{prefix}.{name}" if prefix else name] = pickle.dumps(value)
                except Exception:
                    continue
    return values


def _changed(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    return [name for name, value in after.items() if before.get(name) != value]

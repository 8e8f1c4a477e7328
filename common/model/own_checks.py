"""The checks of a model of the user's own before a run: a step on a few samples, so that a mistake stops it in one line."""

import functools
import pickle
from typing import Any

from common.command_line import shortened
from common.model import own_file, own_model
from common.model.own_file import OwnFile
from common.model.own_model import OwnModel
from common.model.weights import OPTIMIZER_STATE

# How far apart two losses of one batch may be, relative: they are in float32.
TOLERANCE = 1e-3
# Steps of the scheduler, of which it may have phases.
NUM_SCHEDULED = 20


@functools.cache
def check(model: OwnModel) -> None:
    """Takes a step of training on the CPU, without an update. Raises UserError for a mistake in the file."""
    file = model.file
    expect_the_same_samples(file)
    module = own_file.build(file, seed=0)
    inputs, targets = own_file.in_precision(own_model.first_batch(model, own_model.NUM_FIRST), "fp32")
    outputs = own_file.attempt(file, own_file.line_of(file, "model"), module, inputs)
    loss = loss_of(file, outputs, targets)
    own_file.attempt(file, own_file.line_of(file, "loss"), loss.mean().backward)
    if file.has("metric"):
        _expect_number(file, own_file.call(file, "metric", outputs, targets))
    own_file.layers_of(file, module)
    if file.has("optimizer"):
        _expect_optimizer(file, own_file.call(file, "optimizer", module.parameters()))
    if file.has("scheduler"):
        own_model.learning_rates(model, file.constant("LEARNING_RATE") or 1.0, "sgd", NUM_SCHEDULED)
    _expect_mean(file, module.eval(), inputs, targets)


def without_gradient(model: OwnModel) -> list[str]:
    """Returns the names of the parameters that have no gradient after a step on the first samples."""
    module = own_file.build(model.file, seed=0)
    inputs, targets = own_file.in_precision(own_model.first_batch(model, own_model.NUM_FIRST), "fp32")
    own_file.call(model.file, "loss", module(inputs), targets).mean().backward()
    return [name for name, parameter in module.named_parameters() if parameter.requires_grad and parameter.grad is None]


def expect_the_same_samples(file: OwnFile) -> None:
    """Raises UserError where a data set has another sample at an index when it is asked again."""
    for dataset in own_file.data_of(file):
        first, again = (pickle.dumps(_plain(own_file.seeded_sample(file, dataset, 0, 0))) for _ in range(2))
        if first != again:
            message = "data()[i] differs from call to call; draw from PyTorch's, NumPy's or Python's generator, which are seeded"
            own_file.refuse(file, own_file.line_of(file, "data"), message)


def _plain(values: Any) -> Any:
    return own_file.mapped(lambda tensor: tensor.numpy(), values)


def loss_of(file: OwnFile, outputs: Any, targets: Any) -> Any:
    """Returns the loss of a batch. Raises UserError where it is neither a number nor one for each sample, or has no gradient."""
    loss, line = own_file.call(file, "loss", outputs, targets), own_file.line_of(file, "loss")
    if not isinstance(loss, own_file.torch().Tensor):
        own_file.refuse(file, line, f"loss() returns {shortened(repr(loss))}; it must return a tensor with one number")
    if loss.dim() > 1 or (loss.dim() and len(loss) != own_model.NUM_FIRST):
        own_file.refuse(file, line, f"loss() returns a tensor of shape {tuple(loss.shape)}; return the mean over the batch")
    if not loss.requires_grad:
        own_file.refuse(file, line, "loss() returns a number without a gradient; compute it from the outputs, without detach() or item()")
    return loss


def _expect_number(file: OwnFile, value: Any) -> None:
    try:
        float(value)
    except (TypeError, ValueError, RuntimeError):
        message = f"metric() returns {shortened(repr(value))}; it must return the number of right samples"
        own_file.refuse(file, own_file.line_of(file, "metric"), message)


def _expect_optimizer(file: OwnFile, optimizer: Any) -> None:
    if not isinstance(optimizer, own_file.torch().optim.Optimizer):
        message = f"optimizer() returns {type(optimizer).__name__}; it must return a torch.optim.Optimizer"
        own_file.refuse(file, own_file.line_of(file, "optimizer"), message)
    if len({group["lr"] for group in optimizer.param_groups}) > 1:
        message = "optimizer() has several learning rates, and the schedule sets one for all parameters; leave lr of the groups out"
        own_file.refuse(file, own_file.line_of(file, "optimizer"), message)
    own_file.attempt(file, own_file.line_of(file, "optimizer"), optimizer.step)
    kept = {key for state in optimizer.state.values() for key in state} - OPTIMIZER_STATE.keys()
    if kept:
        message = f"optimizer() returns {type(optimizer).__name__}, whose {', '.join(sorted(kept))} cannot be begun anew; use another"
        own_file.refuse(file, own_file.line_of(file, "optimizer"), message)


def _expect_mean(file: OwnFile, module: Any, inputs: Any, targets: Any) -> None:
    """Raises UserError where the loss of a batch is the sum of those of its halves."""
    half = own_model.NUM_FIRST // 2
    halves = [slice(None), slice(half), slice(half, None)]
    with own_file.torch().no_grad():
        whole, first, second = (
            float(own_file.call(file, "loss", module(own_file.mapped(lambda tensor, part=part: tensor[part], inputs)), of_part).mean())
            for part in halves
            for of_part in [own_file.mapped(lambda tensor, part=part: tensor[part], targets)]
        )
    if abs(whole - first - second) < TOLERANCE * abs(whole) / 2:
        own_file.refuse(file, own_file.line_of(file, "loss"), "loss() is a sum over the samples of a batch; return their mean")

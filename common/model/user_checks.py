"""The checks of a model of the user's own before a run: a step on a few samples, so that a mistake stops it in one line."""

import functools
import pickle
from typing import Any

from common.command_line import shortened
from common.model import user_file, user_model
from common.model.user_file import UserFile
from common.model.user_model import UserModel
from common.model.weights import OPTIMIZER_STATE

# How far apart two losses of one batch may be, relative: they are in float32.
TOLERANCE = 1e-3
# Steps of the scheduler, of which it may have phases.
NUM_SCHEDULED = 20
OF_RIGHT = "it must return the number of right samples"


@functools.cache
def check(model: UserModel) -> None:
    """Takes a step of training on the CPU, without an update. Raises UserError for a mistake in the file."""
    file = model.file
    expect_the_same_samples(file)
    module = user_model.build(file, seed=0)
    inputs, targets = user_file.in_precision(user_model.first_batch(model, user_model.NUM_FIRST), "fp32")
    outputs = file.attempt("model", module, inputs)
    loss = loss_of(file, outputs, targets)
    file.attempt("loss", loss.mean().backward)
    if file.has("metric"):
        with user_file.torch().no_grad():
            _expect_metric(file, file.call("metric", outputs, targets))
    user_model.layers_of(file, module)
    if file.has("optimizer"):
        _expect_optimizer(file, file.call("optimizer", module.parameters()))
    if file.has("scheduler"):
        model.scheduled_rates(file.constant("LEARNING_RATE") or 1.0, "sgd", NUM_SCHEDULED)
    _expect_sums(file, module.eval(), inputs, targets)
    if file.has("finish"):
        user_model.finished(model, user_model.flat_sums(user_model.first_sums(model)).tolist(), user_model.NUM_FIRST)


def trained(model: UserModel) -> list[str]:
    """Returns the names of the parameters that are trained, in the order in which DDP numbers them."""
    module = user_model.build(model.file, seed=0)
    return [name for name, parameter in module.named_parameters() if parameter.requires_grad]


def expect_the_same_samples(file: UserFile) -> None:
    """Raises UserError where a data set has another sample at an index when it is asked again."""
    for dataset in user_file.data_of(file):
        samples = [user_file.mapped(user_file.bytes_of, user_file.seeded_sample(file, dataset, 0, 0)) for _ in range(2)]
        first, again = (file.attempt("data", pickle.dumps, sample) for sample in samples)
        if first != again:
            message = "data()[i] differs from call to call; draw from PyTorch's, NumPy's or Python's generator, which are seeded"
            file.refuse("data", message)


def loss_of(file: UserFile, outputs: Any, targets: Any) -> Any:
    """Returns the loss of a batch. Raises UserError where it is neither a number nor one for each sample, or has no gradient."""
    loss = file.call("loss", outputs, targets)
    if not isinstance(loss, user_file.torch().Tensor):
        file.refuse("loss", f"loss() returns {shortened(repr(loss))}; it must return a tensor with one number")
    if loss.dim() > 1 or (loss.dim() and len(loss) != user_model.NUM_FIRST):
        file.refuse("loss", f"loss() returns a tensor of shape {tuple(loss.shape)}; return the mean over the batch")
    if not loss.requires_grad:
        file.refuse("loss", "loss() returns a number without a gradient; compute it from the outputs, without detach() or item()")
    return loss


def _expect_metric(file: UserFile, value: Any) -> None:
    has_finish = file.has("finish")
    try:
        user_model.flat_sums(value) if has_finish else float(value)
    except (TypeError, ValueError, RuntimeError):
        expected = "with finish() it must return sums, as a tensor or a tuple or dictionary of them" if has_finish else OF_RIGHT
        file.refuse("metric", f"metric() returns {shortened(repr(value))}; {expected}")


def _expect_optimizer(file: UserFile, optimizer: Any) -> None:
    if not isinstance(optimizer, user_file.torch().optim.Optimizer):
        message = f"optimizer() returns {type(optimizer).__name__}; it must return a torch.optim.Optimizer"
        file.refuse("optimizer", message)
    if len({group["lr"] for group in optimizer.param_groups}) > 1:
        message = "optimizer() has several learning rates, and the schedule sets one for all parameters; leave lr of the groups out"
        file.refuse("optimizer", message)
    file.attempt("optimizer", optimizer.step)
    kept = {key for state in optimizer.state.values() for key in state} - OPTIMIZER_STATE.keys()
    if kept:
        message = f"optimizer() returns {type(optimizer).__name__}, whose {', '.join(sorted(kept))} cannot be begun anew; use another"
        file.refuse("optimizer", message)


def _expect_sums(file: UserFile, module: Any, inputs: Any, targets: Any) -> None:
    """Raises UserError where the loss of a batch is the sum of those of its halves, or the metric is no sum."""
    half = user_model.NUM_FIRST // 2
    with user_file.torch().no_grad():
        parts = [
            (file.attempt("model", module, user_file.mapped(lambda tensor, part=part: tensor[part], inputs)), of_part)
            for part in (slice(None), slice(half), slice(half, None))
            for of_part in [user_file.mapped(lambda tensor, part=part: tensor[part], targets)]
        ]
        whole, first, second = (float(file.call("loss", *part).mean()) for part in parts)
        metrics = [user_model.flat_sums(file.call("metric", *part)) for part in parts] if file.has("metric") else []
    if abs(whole - first - second) < TOLERANCE * abs(whole) / 2:
        file.refuse("loss", "loss() is a sum over the samples of a batch; return their mean")
    if metrics and _is_no_sum(*metrics):
        file.refuse("metric", "metric() is no sum over the samples of a batch; return their sum")


def _is_no_sum(whole: Any, first: Any, second: Any) -> bool:
    """Returns whether numbers of a batch are by sample, or the means of those of its halves."""
    if not whole.shape == first.shape == second.shape:
        return True
    is_mean, is_sum = (user_file.torch().allclose(whole, value, TOLERANCE, TOLERANCE) for value in ((first + second) / 2, first + second))
    return is_mean and not is_sum

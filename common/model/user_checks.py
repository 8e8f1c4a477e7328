"""The checks of a user's file before a run: a step on a few samples, so that a mistake stops it in one line."""

import functools
import inspect
import math
from typing import Any

from common.command_line import shortened
from common.model import model_file, user_data, user_model
from common.model.model_file import ModelFile
from common.model.user_data import NUM_FIRST

# How far apart two losses of one batch may be, relative: they are in float32.
TOLERANCE = 1e-3
OF_RIGHT = "it must return the number of right samples"


@functools.cache
def check(model: user_model.UserModel) -> None:
    """Takes a step of training on the CPU, without an update. Raises UserError for a mistake in the file."""
    file = model.file
    expect_the_same_samples(file)
    module = user_model.built(model)
    inputs, targets = user_data.in_precision(model.first_batch(NUM_FIRST), "fp32")
    _expect_one_argument(file, module)
    outputs = file.attempt("model", module, inputs)
    loss = loss_of(file, outputs, targets)
    file.attempt("loss", loss.mean().backward)
    for name, parameter in module.named_parameters():
        if parameter.grad is not None and parameter.grad.is_sparse:
            file.refuse("model", f"{name} has a sparse gradient, which not every library averages; leave sparse=True out")
    if file.has("metric"):
        with model_file.torch().no_grad():
            _expect_metric(file, file.call("metric", outputs, targets))
    if file.has("scheduler"):
        model.scheduled_rates(file.constant("LEARNING_RATE") or 1.0, "sgd", user_model.NUM_SCHEDULED)
    _expect_sums(model, module.eval())
    if file.has("finish"):
        user_model.finished(model, user_model.flat_sums(user_model.first_sums(model)).tolist(), NUM_FIRST)


def expect_the_same_samples(file: ModelFile) -> None:
    """Raises UserError where a data set has another sample at an index when it is asked again."""
    for dataset in user_data.data_of(file):
        first, again = (user_data.digest_of(user_data.seeded_samples(file, dataset, [0], 0)) for _ in range(2))
        if first != again:
            message = "data()[i] differs from call to call; draw from PyTorch's, NumPy's or Python's generator, which are seeded"
            file.refuse("data", message)


def _expect_one_argument(file: ModelFile, module: Any) -> None:
    try:
        inspect.signature(module.forward).bind(None)
    except TypeError as problem:
        remedy = "a tuple of inputs, such as images and the targets of a model that returns its losses, is one argument"
        file.refuse("model", f"the model is called with the inputs alone, and forward() has a {problem}; {remedy}")
    except ValueError:
        # Compiled functions have no signature.
        return


def loss_of(file: ModelFile, outputs: Any, targets: Any) -> Any:
    """Returns the loss of a batch. Raises UserError where it is neither a number nor one for each sample, or has no gradient."""
    loss = file.call("loss", outputs, targets)
    if not isinstance(loss, model_file.torch().Tensor):
        file.refuse("loss", f"loss() returns {shortened(repr(loss))}; it must return a tensor with one number")
    if loss.dim() > 1 or (loss.dim() and len(loss) != NUM_FIRST):
        file.refuse("loss", f"loss() returns a tensor of shape {tuple(loss.shape)}; return the mean over the batch")
    if not loss.requires_grad:
        file.refuse("loss", "loss() returns a number without a gradient; compute it from the outputs, without detach() or item()")
    return loss


def _expect_metric(file: ModelFile, value: Any) -> None:
    has_finish = file.has("finish")
    try:
        is_finite = bool(user_model.flat_sums(value).isfinite().all()) if has_finish else math.isfinite(float(value))
    except (TypeError, ValueError, RuntimeError):
        is_finite = False
    if not is_finite:
        expected = "with finish() it must return sums, as a tensor or a tuple or dictionary of them" if has_finish else OF_RIGHT
        file.refuse("metric", f"metric() returns {shortened(repr(value))}; {expected}")


def _expect_sums(model: user_model.UserModel, module: Any) -> None:
    """Raises UserError where the loss of a batch is the sum of those of its halves, or the metric is no sum."""
    file, half = model.file, NUM_FIRST // 2
    parts = [user_model.outputs_and_targets(model, module, *part) for part in ((2 * half,), (half,), (half, half))]
    with model_file.torch().set_grad_enabled(model.takes_derivatives):
        whole, first, second = (float(file.call("loss", *part).detach().mean()) for part in parts)
        metrics = [user_model.flat_sums(file.call("metric", *part)) for part in parts] if file.has("metric") else []
    if abs(whole - first - second) < TOLERANCE * abs(whole) / 2:
        file.refuse("loss", "loss() is a sum over the samples of a batch; return their mean")
    if metrics and _is_no_sum(*metrics):
        file.refuse("metric", "metric() is no sum over the samples of a batch; return their sum")


def _is_no_sum(whole: Any, first: Any, second: Any) -> bool:
    """Returns whether numbers of a batch are by sample, or the means of those of its halves."""
    if not whole.shape == first.shape == second.shape:
        return True
    is_mean, is_sum = (model_file.torch().allclose(whole, value, TOLERANCE, TOLERANCE) for value in ((first + second) / 2, first + second))
    return is_mean and not is_sum

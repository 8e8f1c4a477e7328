"""Experiments on a user's file: each changes one thing of a step or of its process, and what then differs names a cause.

They run in processes of their own.
"""

import contextlib
import copy
import functools
import importlib
import itertools
import math
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from common import apart, workloads
from common.command_line import shortened
from common.config import Settings
from common.data.samples import Samples
from common.model import model_file, user_data
from launch.run.subject import (
    Batch,
    Halved,
    Pass,
    Subject,
    batch_of,
    digests_of,
    halved,
    module_of,
    outputs_of,
    prepared,
    step_of,
    subject_of,
    tensors_of,
)

# Relative: what rounding alone may change, and what it may where a model computes something in float32.
TOLERANCE, LOOSE_TOLERANCE = 1e-9, 1e-6
# The factor of a loss with which its gradients exceed every limit.
LARGE = 1e6
NUM_OPTIMIZER_STEPS, NUM_MODELS = 4, 4
# Where a step is not reached.
STEP_SECONDS = 1.0
# A share of the held-out samples; fewer may be alike by chance.
LEAST_OVERLAP = 0.01
MAX_NAMED = 100


class Examination(NamedTuple):
    """What is found in one process.

    `wrong` holds whatever runs show, which may hide it behind micro-batches; its keys say of what, such as `training` or `evaluation`.
    `of_ranks` says why several ranks train otherwise, and `of_shards` why a library does that updates shards. `step_seconds`: in float64.
    """

    wrong: dict[str, str]
    of_ranks: list[str]
    of_shards: str | None
    without_gradient: list[str]
    step_seconds: float


@functools.cache
def in_one_process(settings: Settings) -> Examination:
    """Makes the experiments that need one process. Raises UserError where the code of a user's file fails."""
    return apart.call(workloads.source_of(settings), examine, settings)


def examine(settings: Settings) -> Examination:
    """Makes the experiments that need one process. Raises UserError where the code of a user's file fails."""
    subject = subject_of(settings)
    if of_reading := _of_reading(subject.train):
        # Whatever else differs may follow from that.
        return Examination({"training": of_reading}, [], None, [], STEP_SECONDS)
    of_steps, of_ranks, without_gradient = _of_steps(subject, halved(subject, subject.train))
    of_shards, of_optimizer = _of_optimizer(subject)
    of_shards = _of_forward(subject) or of_shards or _of_zeros(subject)
    wrong = {"training": of_steps, "optimizer": of_optimizer}
    if len(subject.test):
        held_out = halved(subject, subject.test)
        wrong |= {"evaluation": _of_evaluation(subject, held_out), "metric": _of_metric(subject, held_out), "data": _of_overlap(subject)}
    return Examination({of: text for of, text in wrong.items() if text}, of_ranks, of_shards, without_gradient, _step_seconds(subject))


def _of_steps(subject: Subject, batches: Halved) -> tuple[str | None, list[str], list[str]]:
    """Says what is wrong in a step whatever runs show, and what makes ranks differ, and names the parameters that have no gradient."""
    module = module_of(subject)
    whole, again = (step_of(subject, module, batches.whole) for _ in range(2))
    # A new module for each pass where one keeps something from pass to pass.
    build = functools.partial(module_of, subject) if _differ(whole, again) else lambda: module
    of_ranks = [_of_state(subject, batches), _of_draws(whole, step_of(subject, build(), batches.whole, seed=1))]
    first, second = (step_of(subject, build(), half) for half in batches[1:])
    with_gradient = whole.gradients.keys() | first.gradients.keys() | second.gradients.keys()
    without_gradient = [name for name in _trained_parameters(module) if name not in with_gradient]
    causes = [cause for cause in of_ranks if cause]
    # What is drawn, or kept, differs between the halves anyway.
    wrong = None if causes else _of_halves(whole, first, second) or _of_gradients(subject, build, batches)
    return wrong, causes, without_gradient


def _of_state(subject: Subject, batches: Halved) -> str | None:
    """Compares a step after one of the first half with a step after one of the second half."""
    values, passes = [], []
    for half in batches[1:]:
        module = module_of(subject)
        step_of(subject, module, half)
        values.append(_values(module))
        passes.append(step_of(subject, module, batches.whole))
    if not _differ(*passes):
        return None
    names = shortened(", ".join(_changed(*values)), MAX_NAMED) or "something"
    return f"a step reads {names}, which the steps before it have made from their samples: each rank has its own, or ddp rank 0's"


def _of_draws(whole: Pass, with_other_seed: Pass) -> str | None:
    """Compares two seeds."""
    return "the model or loss() draws random numbers in training: those of a rank are its own" if _differ(whole, with_other_seed) else None


def _of_halves(whole: Pass, first: Pass, second: Pass) -> str | None:
    """Compares a batch with its halves, which two ranks or two micro-batches compute."""
    joined = [_joined(*outputs) for outputs in zip(whole.outputs, first.outputs, second.outputs, strict=False)]
    if any(
        halves is not None and _distance(output, halves) > LOOSE_TOLERANCE for output, halves in zip(whole.outputs, joined, strict=False)
    ):
        return "the outputs of a sample depend on the other samples of its batch, of which a rank has a part"
    if _distance(whole.loss, mean := first.loss + second.loss) > LOOSE_TOLERANCE:
        return f"loss() of a batch ({whole.loss:.6g}) is not the mean of those of its halves ({mean:.6g}), which ranks compute"
    return None


def _of_gradients(subject: Subject, build: Callable[[], Any], batches: Halved) -> str | None:
    """Compares the gradients of a batch with the mean of those of its halves, and large ones too."""
    for factor in (1.0, LARGE):
        whole, first, second = (step_of(subject, build(), batch, factor=factor).gradients for batch in batches)
        names = sorted(whole.keys() & first.keys() & second.keys())
        # All together: of a bias before a norm the gradient is rounding alone.
        if names and _distance(_flat(map(whole.get, names)), _flat(first[name] + second[name] for name in names)) > LOOSE_TOLERANCE:
            parameters = build().named_parameters()
            hooked = [name for name, value in parameters if value._backward_hooks or value._post_accumulate_grad_hooks]
            where = f"hooks of {shortened(', '.join(hooked), MAX_NAMED)}" if hooked else "the model or loss()"
            return (
                f"the backward pass changes gradients before they are averaged over the ranks, as where they are clipped ({where}); "
                "CLIP_NORM clips the averaged gradient"
            )
    return None


def _of_forward(subject: Subject) -> str | None:
    """Compares the parameters before and after a step without an update. Raises UserError where they have another type then."""
    # A teacher begins as its student, and follows it from other values.
    module = module_of(subject, spread=1.0)
    before = [parameter.detach().clone() for parameter in module.parameters()]
    step_of(subject, module, halved(subject, subject.train).whole)
    converted = [name for name, parameter in module.named_parameters() if parameter.dtype != model_file.torch().float64]
    if converted:
        names = shortened(", ".join(converted), MAX_NAMED)
        subject.file.refuse("model", f"--verify trains in float64, and the forward pass gives {names} another type; let them keep theirs")
    changed = [
        name for (name, parameter), value in zip(module.named_parameters(), before, strict=True) if _distance(parameter.detach(), value)
    ]
    names = shortened(", ".join(changed), MAX_NAMED)
    return f"the forward pass changes {names}, of which a library that shards parameters has a copy for the step" if changed else None


def _of_evaluation(subject: Subject, batches: Halved) -> str | None:
    """Compares what follows the evaluation of one half of some held-out samples with what follows that of the other half."""
    values, outputs = [], []
    for half in batches[1:]:
        module = module_of(subject)
        _evaluated(subject, module, half)
        values.append(_values(module))
        outputs.append([*_evaluated(subject, module, batches.whole), *step_of(subject, prepared(module), batches.whole).outputs])
    if not _tensors_differ(*outputs):
        return None
    names = shortened(", ".join(_changed(*values)), MAX_NAMED) or "something"
    return f"evaluating a batch changes {names}, which the model then reads: each rank has its own"


def _of_metric(subject: Subject, batches: Halved) -> str | None:
    """Compares metric() of held-out samples with the sum of those of their halves, of several models, whose predictions are others."""
    if not subject.file.has("metric"):
        return None
    for seed in range(NUM_MODELS):
        module = module_of(subject, spread=seed).eval()
        whole, first, second = (_sums(subject, module, batch) for batch in batches)
        if whole.isfinite().all() and _distance(whole, first + second) > LOOSE_TOLERANCE:
            shown = [shortened(", ".join(f"{number:.6g}" for number in sums.tolist()), MAX_NAMED) for sums in (whole, first + second)]
            return f"metric() of held-out samples ({shown[0]}) is not the sum of those of their halves ({shown[1]}), which ranks add up"
    return None


def _sums(subject: Subject, module: Any, batch: Batch) -> Any:
    """Returns what metric() gives for a batch, without the loss and the number of samples."""
    inputs, targets, weights = copy.deepcopy(batch)
    _, right, _, *sums = subject.criterion.totals(outputs_of(subject, module, inputs), targets, (weights > 0).double()).detach()
    return model_file.torch().stack(sums or [right])


def _of_reading(train: Samples) -> str | None:
    """Reads samples twice, in one order and then in the other."""
    first = digests_of(train)
    again = digests_of(train, list(map(int, reversed(first))))
    if names := [index for index, digest in first.items() if again.get(index, digest) != digest]:
        return f"data()[i] differs from call to call ({shortened(', '.join(names), MAX_NAMED)}): it keeps a state, or draws without a seed"
    return None


def _of_overlap(subject: Subject) -> str | None:
    """Looks for held-out samples among those of training. Data of few values have equal samples in training too."""
    trained, held_out = (list(digests_of(samples, part=0).values()) for samples in (subject.train, subject.test))
    times = Counter(trained)
    # Of the training data a part may have been read.
    share = sum(digest in times for digest in held_out) / len(held_out) * len(subject.train) / len(trained)
    if share < LEAST_OVERLAP or share < 2 * sum(number for number in times.values() if number > 1) / len(trained):
        return None
    return f"about {min(1.0, share):.0%} of the held-out samples have the inputs of a training sample"


def _of_optimizer(subject: Subject) -> tuple[str | None, str | None]:
    """Says why optimizer() does not train shards of parameters as it trains all, and what is wrong with it anyway."""
    if not subject.file.has("optimizer"):
        return None, None
    names = _trained_parameters(module_of(subject))
    before, *whole = _updates(subject, sharded=False)
    untrained = [
        name for name, *halves in zip(names, before, *whole, strict=True) if not any(_distance(half, halves[0]) for half in halves)
    ]
    if untrained:
        return None, f"optimizer() never changes {shortened(', '.join(untrained), MAX_NAMED)}, whatever the gradient is"
    if not all(itertools.starmap(_tensors_differ, itertools.pairwise([before, *whole]))):
        return "optimizer() leaves the parameters as they are in some steps, as where it accumulates gradients; use --accumulate", None
    try:
        _, *shards = _updates(subject, sharded=True)
    except Exception as problem:
        return f"optimizer() does not take shards of parameters, as this backend has them ({shortened(str(problem), MAX_NAMED)})", None
    if any(_tensors_differ(*pair) for pair in zip(whole, shards, strict=True)):
        return (
            "optimizer() updates a value by others, as by the norm of a parameter or of all, and this backend gives it a part of them",
            None,
        )
    return None, None


def _of_zeros(subject: Subject) -> str | None:
    """Takes a step with gradients that are 0 after another one, as a library does that has all gradients in one."""
    unused = [name for name, is_used in subject.model.unused_parameters().items() if is_used]
    if not unused:
        return None
    module, settings = module_of(subject), workloads.resolve(subject.settings, 1)
    optimizer = importlib.import_module("frameworks.shared.pytorch.steps").plain_optimizer_for(settings, module)
    parameters, torch = [parameter for parameter in module.parameters() if parameter.requires_grad], model_file.torch()
    for values in (torch.ones_like, torch.zeros_like):
        before = [parameter.detach().clone() for parameter in parameters]
        for parameter in parameters:
            parameter.grad = values(parameter)
        optimizer.step()
    if not _tensors_differ((parameter.detach() for parameter in parameters), before):
        return None
    names = shortened(", ".join(unused), MAX_NAMED)
    return f"in steps that do not use {names} one process leaves these as they are, and momentum or decay goes on where a gradient is 0"


def _updates(subject: Subject, sharded: bool) -> Iterator[list[Any]]:
    """Yields the first halves of all parameters before and after some steps of the optimizer. A `sharded` one has these halves alone."""
    torch = model_file.torch()
    with model_file.generators_kept():
        module = module_of(subject)
        optimizer = model_file.optimizer_of(subject.file, module.named_parameters())
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        leaves = [torch.nn.Parameter(_first_half(parameter).clone()) for parameter in parameters] if sharded else parameters
        leaf_of = dict(zip(parameters, leaves, strict=True))
        for group in optimizer.param_groups:
            group["params"] = [leaf_of.get(parameter, parameter) for parameter in group["params"]]
        yield [_first_half(leaf).clone() for leaf in leaves]
        for step in range(NUM_OPTIMIZER_STEPS):
            optimizer.zero_grad()
            model_file.seed_generators(step)
            for parameter, leaf in leaf_of.items():
                gradient = (LARGE if step % 2 else 1.0) * torch.randn_like(parameter)
                gradient = _first_half(gradient) if sharded else gradient
                leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient
            optimizer.step()
            yield [(leaf.detach() if sharded else _first_half(leaf)).clone() for leaf in leaves]


def _first_half(tensor: Any) -> Any:
    flat = tensor.detach().flatten()
    return flat[: (len(flat) + 1) // 2]


def _step_seconds(subject: Subject) -> float:
    """Returns the seconds of a step of a batch in float64: the shorter of two."""
    module, durations = module_of(subject), []
    size = subject.settings.batch_size or workloads.workload_of(subject.settings).batch_size
    for _ in range(2):
        begun = time.perf_counter()
        step_of(subject, module, batch_of(subject, subject.train, np.arange(size) % len(subject.train), 1 / size))
        durations.append(time.perf_counter() - begun)
    return min(durations)


def _trained_parameters(module: Any) -> list[str]:
    return [name for name, parameter in module.named_parameters() if parameter.requires_grad]


def _evaluated(subject: Subject, module: Any, batch: Batch) -> list[Any]:
    module.eval()
    with model_file.seeded(0):
        return tensors_of(outputs_of(subject, module, copy.deepcopy(batch.inputs)))


def _flat(tensors: Iterable[Any]) -> Any:
    return model_file.torch().cat([tensor.flatten() for tensor in tensors])


def _joined(whole: Any, first: Any, second: Any) -> Any:
    """Returns the outputs of the samples of the halves of a batch; None where the first axis is not theirs, or others are padded."""
    has_samples = first.dim() > 0 and first.shape == second.shape and whole.shape == (2 * len(first), *first.shape[1:])
    return model_file.torch().cat([first, second]) if has_samples else None


def _differ(first: Pass, second: Pass) -> bool:
    return _tensors_differ([*first.outputs, first.loss], [*second.outputs, second.loss])


def _tensors_differ(tensors: Iterable[Any], expected: Iterable[Any]) -> bool:
    """Whether tensors differ by more than rounding."""
    return any(_distance(*pair) > TOLERANCE for pair in zip(tensors, expected, strict=True))


def _distance(tensor: Any, expected: Any) -> float:
    """Returns the sum of the differences of two tensors, relative to that of the values."""
    if tensor.shape != expected.shape:
        return math.inf
    difference = float((tensor.double() - expected.double()).abs().sum())
    return difference / max(float(expected.double().abs().sum()), 1e-300) if difference else 0.0


def _values(module: Any) -> dict[str, bytes]:
    """Returns the buffers and the layers' attributes by name, without parameters and layers."""
    values = {name: user_data.bytes_of(buffer) for name, buffer in module.named_buffers()}
    for prefix, layer in module.named_modules():
        for name, value in vars(layer).items():
            if not name.startswith("_"):
                with contextlib.suppress(Exception):
                    values[f"{prefix}.{name}" if prefix else name] = pickle.dumps(value)
    return values


def _changed(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    return [name for name, value in after.items() if before.get(name) != value]

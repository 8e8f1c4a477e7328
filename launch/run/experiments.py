"""Experiments on a user's file: each changes one thing of a step or of its process, and what then differs names a cause.

Those of a step are made in one process. The others compare what processes see of a training: one alone, another one, and those with the
variables of ranks, in which nothing else is changed.
"""

import functools
import importlib
import itertools
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from common import apart, workloads
from common.command_line import shortened
from common.config import Settings
from common.data.samples import Samples
from common.errors import UserError
from common.model import model_file, user_data, user_model
from common.ranks import launcher_variables
from launch.run.subject import (
    LIMIT_SECONDS,
    NUM_SAMPLES,
    Halved,
    Pass,
    Subject,
    changed_names,
    differ,
    digests_of,
    distance,
    first_half,
    flat,
    joined,
    models,
    passes_differ,
    prepared,
    subject_of,
    trained_parameters,
    values_of,
)

# Relative: what a difference in float32 within a model may be. Rounding alone is less than TOLERANCE of launch/run/subject.py.
LOOSE_TOLERANCE = 1e-6
# The factor of a loss with which its gradients exceed every limit.
LARGE = 1e6
NUM_OPTIMIZER_STEPS, NUM_MODELS = 4, 4
# Where a step is not reached.
STEP_SECONDS = 1.0
# A share of the held-out samples; fewer may be alike by chance.
LEAST_OVERLAP = 0.01
MAX_NAMED = 100
# Steps that processes train, where they take no longer than LIMIT_SECONDS, and their learning rate where the file has no optimizer.
MAX_STEPS, LEARNING_RATE = 40, 0.01
# Digests by what they are of, and by the name of a part, the number of a sample or of a step.
Observation = dict[str, dict[str, str]]


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
    of_steps, of_ranks, without_gradient = _of_steps(subject, subject.halved(subject.train))
    of_shards, of_optimizer = _of_optimizer(subject)
    of_shards = _of_forward(subject) or of_shards or _of_zeros(subject)
    wrong = {"training": of_steps, "optimizer": of_optimizer}
    if len(subject.test):
        held_out = subject.halved(subject.test)
        wrong |= {"evaluation": _of_evaluation(subject, held_out), "metric": _of_metric(subject, held_out), "data": _of_overlap(subject)}
    return Examination({of: text for of, text in wrong.items() if text}, of_ranks, of_shards, without_gradient, subject.step_seconds())


def _of_steps(subject: Subject, batches: Halved) -> tuple[str | None, list[str], list[str]]:
    """Says what is wrong in a step whatever runs show, and what makes ranks differ, and names the parameters that have no gradient."""
    module = subject.module()
    whole, again = (subject.step(module, batches.whole) for _ in range(2))
    # A new module for each pass where one keeps something from pass to pass.
    build = subject.module if passes_differ(whole, again) else lambda: module
    draws = passes_differ(whole, subject.step(build(), batches.whole, seed=1))
    of_draws = "the model or loss() draws random numbers in training: those of a rank are its own" if draws else None
    first, second = (subject.step(build(), half) for half in batches[1:])
    with_gradient = whole.gradients.keys() | first.gradients.keys() | second.gradients.keys()
    without_gradient = [name for name in trained_parameters(module) if name not in with_gradient]
    causes = [cause for cause in (_of_state(subject, batches), of_draws) if cause]
    # What is drawn, or kept, differs between the halves anyway.
    wrong = None if causes else _of_halves(whole, first, second) or _of_gradients(subject, build, batches)
    return wrong, causes, without_gradient


def _of_state(subject: Subject, batches: Halved) -> str | None:
    """Compares a step after one of the first half with a step after one of the second half."""
    values, passes = [], []
    for half in batches[1:]:
        module = subject.module()
        subject.step(module, half)
        values.append(values_of(module))
        passes.append(subject.step(module, batches.whole))
    if not passes_differ(*passes):
        return None
    names = _listed(changed_names(*values)) or "something"
    return f"a step reads {names}, which the steps before it have made from their samples: each rank has its own, or ddp rank 0's"


def _of_halves(whole: Pass, first: Pass, second: Pass) -> str | None:
    """Compares a batch with its halves, which two ranks or two micro-batches compute."""
    for output, *of_halves in zip(whole.outputs, first.outputs, second.outputs, strict=False):
        together = joined(output, *of_halves)
        if together is not None and distance(output, together) > LOOSE_TOLERANCE:
            return "the outputs of a sample depend on the other samples of its batch, of which a rank has a part"
    if distance(whole.loss, mean := first.loss + second.loss) > LOOSE_TOLERANCE:
        return f"loss() of a batch ({whole.loss:.6g}) is not the mean of those of its halves ({mean:.6g}), which ranks compute"
    return None


def _of_gradients(subject: Subject, build: Callable[[], Any], batches: Halved) -> str | None:
    """Compares the gradients of a batch with the mean of those of its halves, and large ones too."""
    for factor in (1.0, LARGE):
        whole, first, second = (subject.step(build(), batch, factor=factor).gradients for batch in batches)
        names = sorted(whole.keys() & first.keys() & second.keys())
        # All together: of a bias before a norm the gradient is rounding alone.
        if names and distance(flat(map(whole.get, names)), flat(first[name] + second[name] for name in names)) > LOOSE_TOLERANCE:
            parameters = build().named_parameters()
            hooked = [name for name, value in parameters if value._backward_hooks or value._post_accumulate_grad_hooks]
            where = f"hooks of {_listed(hooked)}" if hooked else "the model or loss()"
            return (
                f"the backward pass changes gradients before they are averaged over the ranks, as where they are clipped ({where}); "
                "CLIP_NORM clips the averaged gradient"
            )
    return None


def _of_forward(subject: Subject) -> str | None:
    """Compares the parameters before and after a step without an update. Raises UserError where they have another type then."""
    # A teacher begins as its student, and follows it from other values.
    module = subject.module(spread=1.0)
    before = [parameter.detach().clone() for parameter in module.parameters()]
    subject.step(module, subject.halved(subject.train).whole)
    converted = [name for name, parameter in module.named_parameters() if parameter.dtype != model_file.torch().float64]
    if converted:
        names = _listed(converted)
        subject.file.refuse("model", f"--verify trains in float64, and the forward pass gives {names} another type; let them keep theirs")
    changed = [
        name for (name, parameter), value in zip(module.named_parameters(), before, strict=True) if distance(parameter.detach(), value)
    ]
    names = _listed(changed)
    return f"the forward pass changes {names}, of which a library that shards parameters has a copy for the step" if changed else None


def _of_evaluation(subject: Subject, batches: Halved) -> str | None:
    """Compares what follows the evaluation of one half of some held-out samples with what follows that of the other half."""
    values, outputs = [], []
    for half in batches[1:]:
        module = subject.module()
        subject.evaluated(module, half)
        values.append(values_of(module))
        outputs.append([*subject.evaluated(module, batches.whole), *subject.step(prepared(module), batches.whole).outputs])
    if not differ(*outputs):
        return None
    names = _listed(changed_names(*values)) or "something"
    return f"evaluating a batch changes {names}, which the model then reads: each rank has its own"


def _of_metric(subject: Subject, batches: Halved) -> str | None:
    """Compares metric() of held-out samples with the sum of those of their halves, of several models, whose predictions are others."""
    if not subject.file.has("metric"):
        return None
    for seed in range(NUM_MODELS):
        module = subject.module(spread=seed).eval()
        whole, first, second = (subject.sums(module, batch) for batch in batches)
        if whole.isfinite().all() and distance(whole, first + second) > LOOSE_TOLERANCE:
            shown = [_listed(f"{number:.6g}" for number in sums.tolist()) for sums in (whole, first + second)]
            return f"metric() of held-out samples ({shown[0]}) is not the sum of those of their halves ({shown[1]}), which ranks add up"
    return None


def _of_reading(train: Samples) -> str | None:
    """Reads samples twice, in one order and then in the other."""
    first = digests_of(train)
    again = digests_of(train, list(map(int, reversed(first))))
    if names := [index for index, digest in first.items() if again.get(index, digest) != digest]:
        return f"data()[i] differs from call to call ({_listed(names)}): it keeps a state, or draws without a seed"
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
    names = trained_parameters(subject.module())
    before, *whole = _updates(subject, sharded=False)
    untrained = [name for name, *halves in zip(names, before, *whole, strict=True) if not any(distance(half, halves[0]) for half in halves)]
    if untrained:
        return None, f"optimizer() never changes {_listed(untrained)}, whatever the gradient is"
    if not all(itertools.starmap(differ, itertools.pairwise([before, *whole]))):
        return "optimizer() leaves the parameters as they are in some steps, as where it accumulates gradients; use --accumulate", None
    try:
        _, *shards = _updates(subject, sharded=True)
    except Exception as problem:
        return f"optimizer() does not take shards of parameters, as this backend has them ({shortened(str(problem), MAX_NAMED)})", None
    depends = any(differ(*pair) for pair in zip(whole, shards, strict=True))
    reason = "optimizer() updates a value by others, as by the norm of a parameter or of all, and this backend gives it a part of them"
    return reason if depends else None, None


def _of_zeros(subject: Subject) -> str | None:
    """Takes a step with gradients that are 0 after another one, as a library does that has all gradients in one."""
    unused = [name for name, is_used in subject.model.unused_parameters.items() if is_used]
    if not unused:
        return None
    module, settings = subject.module(), workloads.resolve(subject.settings, 1)
    optimizer = importlib.import_module("frameworks.shared.pytorch.steps").plain_optimizer_for(settings, module)
    parameters, torch = [parameter for parameter in module.parameters() if parameter.requires_grad], model_file.torch()
    for values in (torch.ones_like, torch.zeros_like):
        before = [parameter.detach().clone() for parameter in parameters]
        for parameter in parameters:
            parameter.grad = values(parameter)
        optimizer.step()
    if not differ((parameter.detach() for parameter in parameters), before):
        return None
    names = _listed(unused)
    return f"in steps that do not use {names} one process leaves these as they are, and momentum or decay goes on where a gradient is 0"


def _updates(subject: Subject, sharded: bool) -> Iterator[list[Any]]:
    """Yields the first halves of all parameters before and after some steps of the optimizer. A `sharded` one has these halves alone."""
    torch = model_file.torch()
    with model_file.generators_kept():
        module = subject.module()
        optimizer = model_file.optimizer_of(subject.file, module.named_parameters())
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        leaves = [torch.nn.Parameter(first_half(parameter).clone()) for parameter in parameters] if sharded else parameters
        leaf_of = dict(zip(parameters, leaves, strict=True))
        for group in optimizer.param_groups:
            group["params"] = [leaf_of.get(parameter, parameter) for parameter in group["params"]]
        yield [first_half(leaf).clone() for leaf in leaves]
        for step in range(NUM_OPTIMIZER_STEPS):
            optimizer.zero_grad()
            model_file.seed_generators(step)
            for parameter, leaf in leaf_of.items():
                gradient = (LARGE if step % 2 else 1.0) * torch.randn_like(parameter)
                gradient = first_half(gradient) if sharded else gradient
                leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient
            optimizer.step()
            yield [(leaf.detach() if sharded else first_half(leaf)).clone() for leaf in leaves]


def _listed(names: Iterable[str]) -> str:
    return shortened(", ".join(names), MAX_NAMED)


@functools.cache
def between_processes(settings: Settings, num_ranks: int) -> str | None:
    """Says what differs in another process, on another rank, or with the variables of ranks; None where nothing is found."""
    observed = functools.partial(apart.call, workloads.source_of(settings), observe, settings, num_ranks)
    # An interpreter of its own orders sets otherwise.
    with ThreadPoolExecutor(2) as pool:
        (alone, first, last), (again,) = pool.map(observed, ([None, 0, num_ranks - 1], [None]))
    for subject in alone:
        comparisons = {
            "from process to process, so that they follow no seed": (alone, again),
            f"from rank 0 to rank {num_ranks - 1}": (first, last),
            f"from one process to {num_ranks} ranks": (alone, first),
        }
        for between, observations in comparisons.items():
            left, right = (observation.get(subject, {}) for observation in observations)
            if names := [name for name in left if name in right and left[name] != right[name]]:
                return f"{subject} differ {between} ({_listed(names)})"
    return None


def observe(settings: Settings, num_ranks: int, ranks: list[int | None]) -> list[Observation]:
    """Returns what processes see of a training, each in a fork: alone (None), or with the variables of a rank and no communication."""
    # Before the forks, which then need not: PyTorch's optimizers take its compiler, and NumPy takes its masked arrays for what is unique.
    models()
    for name in ("torch._dynamo", "numpy.ma", "frameworks.shared.pytorch.steps"):
        importlib.import_module(name)
    context = multiprocessing.get_context("fork")
    observations = []
    for rank in ranks:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_observe, args=(settings, num_ranks, rank, sender))
        process.start()
        sender.close()
        try:
            observations.append(receiver.recv())
        except EOFError:
            # The file has ended its process.
            observations.append({})
        process.join()
    return observations


def _observe(settings: Settings, num_ranks: int, rank: int | None, sender: Connection) -> None:
    observation: Observation = {}
    try:
        _become(rank, num_ranks)
        for subject, digests in _observations(settings):
            observation[subject] = digests
    except UserError as mistake:
        observation["the errors"] = {str(mistake): str(rank)}
    sender.send(observation)


def _become(rank: int | None, num_ranks: int) -> None:
    """Gives this process the variables of a rank, and a process group of PyTorch's that communicates nothing; or none of them."""
    for source in (*launcher_variables.LAUNCHERS, *launcher_variables.BATCH_SYSTEMS):
        numbers = dict.fromkeys((source.rank, *source.local_rank), rank) | dict.fromkeys((source.size, *source.local_size), num_ranks)
        for name, number in numbers.items():
            os.environ.pop(name, None)
            if rank is not None:
                os.environ[name] = str(number)
    if rank is not None:
        fake = importlib.import_module("torch.testing._internal.distributed.fake_pg")
        group = importlib.import_module("torch.distributed")
        group.init_process_group("fake", rank=rank, world_size=num_ranks, store=fake.FakeStore())


def _observations(settings: Settings) -> Iterator[tuple[str, dict[str, str]]]:
    subject = subject_of(settings)
    train, test = subject.train, subject.test
    yield "the numbers of samples of data()", {"training": str(len(train)), "held out": str(len(test))}
    yield "the samples of data()", digests_of(train)
    yield "the held-out samples of data()", digests_of(test) if len(test) else {}
    module = subject.module()
    parameters = dict(module.named_parameters())
    yield "the parameters of model()", {name: user_data.digest_of(value) for name, value in parameters.items()}
    yield (
        "the buffers of model()",
        {name: user_data.digest_of(value) for name, value in module.state_dict().items() if name not in parameters},
    )
    rates = subject.model.scheduled_rates(LEARNING_RATE, "sgd", user_model.NUM_SCHEDULED)
    yield "the learning rates of scheduler()", {f"step {step}": str(rate) for step, rate in enumerate(rates or (), 1)}
    outputs, loss, _ = subject.step(module, subject.halved(train).whole)
    yield "the outputs of the model", {"in training": user_data.digest_of(outputs)}
    yield "the losses of loss()", {"of a batch": user_data.digest_of(loss)}
    yield "the losses of training", dict(_losses(subject))


def _losses(subject: Subject) -> Iterator[tuple[str, str]]:
    """Trains steps with batches of the first samples and yields their losses, by the name of the step."""
    module, size = subject.module(), NUM_SAMPLES // 2
    if subject.file.has("optimizer"):
        optimizer = model_file.optimizer_of(subject.file, module.named_parameters())
    else:
        optimizer = model_file.torch().optim.SGD(module.parameters(), LEARNING_RATE)
    begun = time.perf_counter()
    for step in range(MAX_STEPS):
        batch = subject.batch(subject.train, (np.arange(size) + step * size) % len(subject.train), 1 / size)
        yield f"step {step + 1}", user_data.digest_of(subject.step(module, batch, seed=step).loss)
        subject.file.attempt("optimizer", optimizer.step)
        if time.perf_counter() - begun > LIMIT_SECONDS:
            return

"""What processes see of a training: one alone, another one, and those with the variables of ranks, in which nothing else is changed."""

import functools
import importlib
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import numpy as np

from common import apart, workloads
from common.command_line import shortened
from common.config import Settings
from common.errors import UserError
from common.model import model_file, user_data, user_model
from common.ranks import launcher_variables
from launch.run.experiments import MAX_NAMED
from launch.run.subject import (
    LIMIT_SECONDS,
    NUM_SAMPLES,
    Subject,
    batch_of,
    digests_of,
    halved,
    models,
    module_of,
    step_of,
    subject_of,
)

# Steps that are trained, where they take no longer, and their learning rate where the file has no optimizer.
MAX_STEPS, LEARNING_RATE = 40, 0.01
# Digests by what they are of, and by the name of a part, the number of a sample or of a step.
Observation = dict[str, dict[str, str]]


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
                return f"{subject} differ {between} ({shortened(', '.join(names), MAX_NAMED)})"
    return None


def observe(settings: Settings, num_ranks: int, ranks: list[int | None]) -> list[Observation]:
    """Returns what processes see of a training, each in a fork: alone (None), or with the variables of a rank and no communication."""
    # Before the forks, which then need not: PyTorch's optimizers take its compiler.
    models()
    importlib.import_module("torch._dynamo")
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
    module = module_of(subject)
    parameters = dict(module.named_parameters())
    yield "the parameters of model()", {name: user_data.digest_of(value) for name, value in parameters.items()}
    yield (
        "the buffers of model()",
        {name: user_data.digest_of(value) for name, value in module.state_dict().items() if name not in parameters},
    )
    rates = subject.model.scheduled_rates(LEARNING_RATE, "sgd", user_model.NUM_SCHEDULED)
    yield "the learning rates of scheduler()", {f"step {step}": str(rate) for step, rate in enumerate(rates or (), 1)}
    outputs, loss, _ = step_of(subject, module, halved(subject, train).whole)
    yield "the outputs of the model", {"in training": user_data.digest_of(outputs)}
    yield "the losses of loss()", {"of a batch": user_data.digest_of(loss)}
    yield "the losses of training", dict(_losses(subject))


def _losses(subject: Subject) -> Iterator[tuple[str, str]]:
    """Trains steps with batches of the first samples and yields their losses, by the name of the step."""
    module, size = module_of(subject), NUM_SAMPLES // 2
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = model_file.optimizer_of(subject.file, module.named_parameters()) if subject.file.has("optimizer") else None
    begun = time.perf_counter()
    for step in range(MAX_STEPS):
        batch = batch_of(subject, subject.train, (np.arange(size) + step * size) % len(subject.train), 1 / size)
        yield f"step {step + 1}", user_data.digest_of(step_of(subject, module, batch, seed=step).loss)
        if optimizer:
            subject.file.attempt("optimizer", optimizer.step)
        with model_file.torch().no_grad():
            for parameter in parameters if optimizer is None else ():
                parameter.sub_(LEARNING_RATE * (0.0 if parameter.grad is None else parameter.grad))
        if time.perf_counter() - begun > LIMIT_SECONDS:
            return

"""What a rank of an unmodified PyTorch script shows of its training, written to a file of its own, which checks.py judges.

PyTorch loads this file at the end of its import, as it loads what adds a device to it (the entry points of `torch.backends`, from 2.5 on):
PYTHONPATH has its folder. The probe communicates with nobody. It keeps projections of tensors: a few weighted sums of elements at equal
distances. These are linear, so the mean of the ranks' projected gradients is the projection of their mean. A failure of the probe ends the
watching, and not the script.
"""

import atexit
import contextlib
import functools
import json
import os
import re
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import GeneratorType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer, lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import dataloader

NUM_SUMS, NUM_ELEMENTS = 4, 1024
MAX_SAMPLES, MAX_PASSES, MAX_EVALUATIONS = 20_000, 20, 100
DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
LOSSES = ("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")
# What a loss is multiplied with after its function.
MULTIPLES = ("MulBackward0", "DivBackward0", "ToCopyBackward0")
# What wrappers put into the name of a parameter.
WRAPPERS = re.compile(r"\b(module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")

Action = Callable[..., Any]


def install_if_audited() -> None:
    if "TANDEM_AUDIT_FOLDER" in os.environ:
        install(os.environ["TANDEM_AUDIT_FOLDER"], int(os.environ["TANDEM_AUDIT_STEPS"]))


def install(folder: str, num_steps: int) -> "Probe":
    """Watches this process from now on, and its gradients for a number of steps; writes to a file in a folder."""
    probe = Probe(folder, num_steps)
    probe.guarded(probe.install)()
    return probe


class Watched:
    """A parameter of a model, and the gradients that arrived at it since the last step of its optimizer."""

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name, self.tensor, self.has_gradient = name, tensor, False
        self.forget()

    def forget(self) -> None:
        # What this rank computed, and what `grad` was before each part of it arrived.
        self.alone: Tensor | None = None
        self.before: list[Tensor | None] = []
        self.before_clipping: Tensor | None = None


class Probe:
    """Puts itself around functions of PyTorch, which do what they did."""

    def __init__(self, folder: str, num_steps: int) -> None:
        self.folder, self.num_steps, self.pid, self.failed = folder, num_steps, 0, False
        self.weights = torch.randn(NUM_SUMS, NUM_ELEMENTS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        self.watched: dict[Tensor, Watched] = {}
        # Of each model the samples on which it is trained.
        self.models: dict[nn.Module, list[float]] = {}
        self.passes: list[dict[str, Any]] = []
        self.last_pass: dict[str, Any] | None = None
        # Whether a model is being computed, and for training; the modes of its layers for which the mode matters.
        self.inside = self.trains = False
        self.layers: set[bool] = set()
        # Parameters with which something was computed for training.
        self.computed: set[Tensor | None] = set()
        # Of the model that was last computed for training, and the steps before which all such layers were in evaluation mode.
        self.last_call: tuple[str, bool, set[bool]] = "", True, set()
        self.inactive: Counter[str] = Counter()
        self.evaluation: dict[str, Any] = {}
        self.num_evaluations, self.random = 0, []
        self.num_backward, self.steps, self.num_skipped, self.num_skipped_last = 0, 0, 0, 0
        # Calls inside each other: a part that is computed again calls backward, and a wrapper's step calls that of its optimizer.
        self.open_backwards, self.open_steps = 0, 0
        self.steps_of: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
        self.schedulers: dict[int, dict[str, Any]] = {}
        self.scale: Tensor | None = None
        self.begin_step([])

    def install(self) -> None:
        # Once: with a filter that comes and goes, Python forgets which warnings of the script it has printed.
        warnings.filterwarnings("ignore", module=re.escape(__name__))
        call: Action = nn.Module.__call__
        nn.Module.__call__ = functools.wraps(call)(lambda module, /, *rest, **named: self.call_module(call, module, *rest, **named))
        self.watch_calls(torch.autograd, ["backward"], self.before_backward, self.after_backward)
        self.watch_calls(functional, LOSSES, after=self.note_loss)
        self.watch_calls(functional, DROPOUTS, self.note_dropout)
        self.watch_calls(dataloader._BaseDataLoaderIter, ["_next_index"], after=self.note_index)
        self.watch_calls(dataloader._BaseDataLoaderIter, ["__next__"], after=self.note_batch)
        # Persistent workers have one iterator for all epochs.
        self.watch_calls(dataloader._BaseDataLoaderIter, ["_reset"], lambda iterator, *_, **__: vars(iterator).pop("tandem_pass", None))
        self.watch_calls(torch.amp.GradScaler, ["step"], self.before_scaler, self.after_scaler)
        for module in (nn.utils, nn.utils.clip_grad):
            self.watch_calls(module, ["clip_grad_norm_", "clip_grad_value_"], self.before_clipping)
        for module in (torch, torch.serialization):
            self.watch_calls(module, ["save"], self.note_saved)
        for kind in vars(lr_scheduler).values():
            if isinstance(kind, type) and issubclass(kind, lr_scheduler.LRScheduler) and "step" in vars(kind):
                self.watch_calls(kind, ["step"], self.note_scheduler)
        register_optimizer_step_pre_hook(self.before_step)
        register_optimizer_step_post_hook(lambda optimizer, *_: self.guarded(self.after_step)(optimizer))
        atexit.register(self.guarded(self.end))

    def watch_calls(self, owner: Any, names: Iterable[str], before: Action | None = None, after: Action | None = None) -> None:
        for name in names:
            setattr(owner, name, self.watched_call(getattr(owner, name), before, after))

    def watched_call(self, plain: Action, before: Action | None, after: Action | None) -> Action:
        """A function with actions before and after it; the second one gets the result, which is None after an exception."""

        @functools.wraps(plain)
        def around(*arguments: Any, **named: Any) -> Any:
            if self.failed or torch.compiler.is_compiling():
                return plain(*arguments, **named)
            # Such as model.parameters(), which would be used up.
            arguments = tuple(list(argument) if isinstance(argument, GeneratorType) else argument for argument in arguments)
            named = {name: list(argument) if isinstance(argument, GeneratorType) else argument for name, argument in named.items()}
            result = None
            self.guarded(before)(*arguments, **named)
            try:
                result = plain(*arguments, **named)
            finally:
                self.guarded(after)(result, *arguments, **named)
            return result

        return around

    def guarded(self, action: Action | None) -> Action:
        """An action that disturbs nothing: if it fails, the probe is silent from then on."""

        def run(*arguments: Any, **named: Any) -> None:
            if action and not self.failed:
                try:
                    with torch.no_grad():
                        action(*arguments, **named)
                except Exception as error:
                    self.failed = True
                    with contextlib.suppress(Exception):
                        self.write("failed", error=f"{type(error).__name__}: {error}")

        return run

    def write(self, event: str, **fields: Any) -> None:
        if self.pid != os.getpid():
            self.pid = os.getpid()
            self.file = open(os.path.join(self.folder, f"{os.uname().nodename}-{self.pid}.jsonl"), "w", buffering=1)  # noqa: SIM115
        rank, world_size = identity()
        self.file.write(json.dumps({"event": event, "rank": rank, "world_size": world_size, **fields}, default=list) + "\n")

    def project(self, tensor: Tensor) -> Tensor:
        """The sums of a tensor, or of this rank's shard of it."""
        flat = local(tensor.detach()).to_dense().reshape(-1)
        flat = flat[:: max(1, len(flat) // NUM_ELEMENTS)][:NUM_ELEMENTS]
        self.weights = self.weights.to(flat.device)
        return self.weights[:, : len(flat)] @ flat.double()

    def call_module(self, plain: Action, module: nn.Module, /, *arguments: Any, **named: Any) -> Any:
        """Only what the script itself calls is a model; what is called inside of it is a part."""
        is_part = self.inside or next(module.parameters(), None) is None
        if self.failed or is_part or torch.compiler.is_compiling():
            if self.inside and isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats:
                self.layers.add(module.training)
            if self.inside and self.trains and torch.is_grad_enabled():
                self.computed.update(module._parameters.values())
            return plain(module, *arguments, **named)
        self.inside, self.trains, self.layers = True, torch.is_grad_enabled(), set()
        try:
            self.guarded(self.before_model)(module, (arguments, named))
            return plain(module, *arguments, **named)
        finally:
            self.inside = False

    def before_model(self, module: nn.Module, inputs: Any) -> None:
        if not self.trains:
            self.evaluate(module, inputs)
            return
        self.close_evaluation()
        plain = unwrapped(module)
        # Some are not made yet, or with torch.func no parameters; where parameters are sharded, whole ones are in their places for a while.
        named = [(name, tensor) for name, tensor in module.named_parameters() if isinstance(tensor, nn.Parameter)]
        new: dict[str, Tensor] = {name: tensor for name, tensor in named if tensor not in self.watched and not is_lazy(tensor)}
        is_sharded = plain in self.models and any(hasattr(tensor, "to_local") for tensor in self.watched)
        if any(tensor.requires_grad for tensor in new.values()) and self.steps < self.num_steps and not is_sharded:
            self.watch(module, new)
        if plain in self.models:
            self.last_call = type(plain).__name__, module.training, self.layers
            samples = self.models[plain]
            samples += self.recognize(inputs) if len(samples) < MAX_SAMPLES else []

    def recognize(self, inputs: Any) -> list[float]:
        """A number for each sample of a batch, by which it is known again on another rank, in another epoch and in evaluation."""
        tensors = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]
        batches = [local(tensor.detach()) for tensor in tensors if tensor.dim() and not tensor.requires_grad]
        columns = [tensor for tensor in batches if len(tensor) == len(batches[0])]
        total = None
        for number, column in enumerate(columns):
            rows = column.reshape(len(column), -1)
            rows = rows[:, :: max(1, rows.shape[1] // NUM_ELEMENTS)][:, :NUM_ELEMENTS].cpu()
            # A few integers do not tell one sample from another.
            if rows.is_floating_point() or rows.shape[1] >= 4:
                digests = rows.double() @ self.weights[number % NUM_SUMS, : rows.shape[1]].cpu()
                total = digests if total is None else total + digests
        return [] if total is None else [float(f"{digest:.9g}") for digest in total.tolist()]

    def watch(self, module: nn.Module, parameters: dict[str, Tensor]) -> None:
        """Watches parameters of a model from its first training on, and those that replace them later."""
        plain = unwrapped(module)
        place = [*self.models, plain].index(plain)
        self.models.setdefault(plain, [])
        prefix = f"{type(plain).__name__}{place}." if place else ""
        earlier = {watched.name: tensor for tensor, watched in self.watched.items()}
        sizes = {}
        for name, tensor in parameters.items():
            watched = Watched(prefix + bare(name), tensor)
            sizes[watched.name] = [local(tensor).numel(), tensor.numel()]
            self.watched.pop(earlier.get(watched.name, tensor), None)
            self.watched[tensor] = watched
            if tensor.requires_grad:
                tensor.register_hook(functools.partial(self.guarded(self.gradient_arrives), watched))
        buffers = {bare(name): self.project(tensor) for name, tensor in module.named_buffers() if tensor.is_floating_point()}
        self.write("model", sizes=sizes, buffers={} if self.steps else as_numbers(buffers))

    def gradient_of(self, watched: Watched) -> Tensor | None:
        return None if watched.tensor.grad is None else self.project(watched.tensor.grad)

    def gradient_arrives(self, watched: Watched, gradient: Tensor) -> None:
        """Of this rank alone, before anybody averages it; PyTorch adds it to what `grad` has."""
        watched.has_gradient = True
        if self.steps < self.num_steps:
            before, arriving = self.gradient_of(watched), self.project(gradient)
            watched.before.append(before)
            watched.alone = arriving if before is None else before + arriving

    def note_dropout(self, input: Tensor, p: float = 0.5, training: bool = True, *_: Any, **__: Any) -> None:
        if self.inside and p:
            self.layers.add(bool(training))
            if training and self.trains and len(self.random) < 3:
                state = torch.cuda.get_rng_state(input.device) if input.is_cuda else torch.get_rng_state()
                self.random.append(zlib.crc32(bytes(state.tolist())))

    def evaluate(self, module: nn.Module, inputs: Any) -> None:
        """Of calls without gradients between two of training: which model it is, in which mode, on which samples."""
        self.num_batches = 0
        # PyTorch's own means for the statistics of averaged weights.
        if is_called_by("update_bn"):
            return
        if not self.evaluation and self.steps and self.num_evaluations < MAX_EVALUATIONS:
            self.num_evaluations += 1
            plain = unwrapped(module)
            self.evaluation = {
                "steps": self.steps, "kind": type(plain).__name__, "layers": set(), "samples": {},
                "model": [*self.models].index(plain) if plain in self.models else None,
                "is_trained": any(tensor in self.watched for tensor in module.parameters()),
                "parameters": self.compare(module.named_parameters()),
            }  # fmt: skip
        if self.evaluation:
            self.layers, by_pass = self.evaluation["layers"], self.evaluation["samples"]
            # Of one pass of a loader, or of one call.
            key = id(self.last_pass) if self.last_pass and self.last_pass["num_steps"] is None else len(by_pass)
            by_pass[key] = by_pass.get(key, []) + (self.recognize(inputs) if sum(map(len, by_pass.values())) < MAX_SAMPLES else [])

    def close_evaluation(self) -> None:
        if self.evaluation:
            self.write("evaluation", **self.evaluation)
            self.evaluation = {}

    def compare(self, named_tensors: Iterable[tuple[str, Tensor]]) -> list[list[Any]]:
        """[name, parameter, trained parameter of its name] of a model or a file, which may have several of a name, as with averages."""
        trained = {watched.name: tensor for tensor, watched in self.watched.items()}
        pairs = [(bare(name), tensor, trained.get(bare(name))) for name, tensor in named_tensors]
        same = [(name, tensor, now) for name, tensor, now in pairs if now is not None and local(tensor).shape == local(now).shape]
        return as_numbers([[name, self.project(tensor), self.project(now)] for name, tensor, now in same])

    def note_saved(self, obj: Any, *_: Any, **__: Any) -> None:
        if self.steps:
            self.write("saved", steps=self.steps, parameters=self.compare(parameters_in(obj)))

    def note_loss(self, loss: Tensor | None, input: Tensor, target: Tensor, *_: Any, **options: Any) -> None:
        """How many terms a loss has, and whether it is their sum."""
        if isinstance(loss, Tensor) and loss.grad_fn and not loss.dim():
            is_counted = not target.is_floating_point()
            num_terms = (target != options.get("ignore_index", -100)).sum() if is_counted else input.numel()
            function: Any = loss.grad_fn
            function.metadata["terms"] = num_terms, options.get("reduction") == "sum"

    def before_backward(self, tensors: Any, *_: Any, **__: Any) -> None:
        self.open_backwards += 1
        if self.open_backwards > 1:
            return
        # Parts of the model may be computed again meanwhile.
        self.inside = True
        loss = tensors if isinstance(tensors, Tensor) else tensors[0]
        self.num_backward += 1
        if self.last_pass:
            self.last_pass["trains"] = True
        if self.steps < self.num_steps and loss.numel() == 1 and loss.grad_fn:
            self.watch_loss(loss)

    def after_backward(self, *_: Any, **__: Any) -> None:
        self.open_backwards -= 1
        self.inside = self.open_backwards > 0

    def watch_loss(self, loss: Tensor) -> None:
        """Adds [value, number of terms, factor] of a loss, which is a multiple of one loss function or has None for the number."""
        function: Any = loss.grad_fn
        place = loss.output_nr
        while "terms" not in function.metadata and type(function).__name__ in MULTIPLES:
            parts = [part for part in function.next_functions if part[0]]
            if len(parts) > 1:
                break
            function, place = parts[0]
        num_terms, is_sum = function.metadata.get("terms", (None, False))
        terms = [local(loss.detach()).reshape(()), num_terms, 1.0]
        self.losses.append(terms)

        def factor_arrives(gradients: tuple[Tensor, ...]) -> None:
            terms[2] = local(gradients[place]).reshape(()) * (num_terms if is_sum else 1)

        function.register_prehook(self.guarded(factor_arrives))

    def before_clipping(self, parameters: Any, *_: Any, **__: Any) -> None:
        for tensor in [parameters] if isinstance(parameters, Tensor) else parameters:
            if tensor in self.watched and self.steps < self.num_steps:
                self.watched[tensor].before_clipping = self.gradient_of(self.watched[tensor])

    def before_scaler(self, scaler: Any, *_: Any, **__: Any) -> None:
        self.scale, self.steps_before_scaler = scaler._scale, self.steps

    def after_scaler(self, *_: Any, **__: Any) -> None:
        self.scale, is_skipped = None, self.steps == self.steps_before_scaler
        self.num_skipped += is_skipped
        self.num_skipped_last = self.num_skipped_last + 1 if is_skipped else 0
        if is_skipped:
            self.begin_step(self.watched.values())

    def before_step(self, optimizer: Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Of steps inside each other, as of a wrapper, the innermost has the gradients that are applied; a closure computes them in it."""
        if self.failed:
            return None
        self.open_steps += 1
        if not any(map(callable, [*arguments[1:], *named.values()])):
            self.guarded(self.observe)(optimizer)
            return None

        def watched(argument: Any) -> Any:
            return self.watched_call(argument, None, lambda *_, **__: self.observe(optimizer)) if callable(argument) else argument

        return (arguments[0], *map(watched, arguments[1:])), {name: watched(argument) for name, argument in named.items()}

    def stepped_by(self, optimizer: Optimizer) -> list[Watched]:
        tensors = {tensor for group in optimizer.param_groups for tensor in group["params"]}
        return [watched for tensor, watched in self.watched.items() if tensor in tensors]

    def observe(self, optimizer: Optimizer) -> None:
        # Without gradients so far a library only makes the state of the optimizer.
        if self.steps >= self.num_steps or not self.num_backward:
            return
        for tensor, watched in self.watched.items():
            watched.has_gradient |= tensor.grad is not None
        gradients = {
            watched.name: [self.gradient_of(watched), watched.alone, watched.before_clipping, watched.before, watched.tensor.requires_grad]
            for watched in self.stepped_by(optimizer)
        }
        self.step = as_numbers({
            "optimizer": type(optimizer).__name__, "gradients": self.step.get("gradients", {}) | gradients,
            "values": {watched.name: self.project(tensor) for tensor, watched in self.watched.items()},
            "rates": [float(group["lr"]) for group in optimizer.param_groups if "lr" in group],
            "num_batches": self.num_batches, "scale": 1.0 if self.scale is None else self.scale, "losses": self.losses,
        })  # fmt: skip

    def after_step(self, optimizer: Optimizer) -> None:
        self.open_steps -= 1
        if not self.open_steps and self.num_backward:
            self.steps += 1
            if optimizer not in self.steps_of and self.last_pass:
                self.last_pass["begins"] = True
            self.steps_of[optimizer] = self.steps_of.get(optimizer, 0) + 1
            # What is computed without a step, as an attack on the inputs, may be in evaluation mode.
            kind, is_training, layers = self.last_call
            if layers == {False} and not is_training:
                self.inactive[kind] += 1
            if self.step:
                self.write("step", number=self.steps, **self.step)
            self.begin_step(self.stepped_by(optimizer))

    def begin_step(self, stepped: Iterable[Watched]) -> None:
        for watched in stepped:
            watched.forget()
        self.step: dict[str, Any] = {}
        self.losses: list[list[Any]] = []
        self.num_batches = 0

    def note_scheduler(self, scheduler: Any, *_: Any, **__: Any) -> None:
        optimizer = scheduler.optimizer
        # A wrapper's hooks are those of the optimizer in it.
        while optimizer not in self.steps_of and isinstance(getattr(optimizer, "optimizer", None), Optimizer):
            optimizer = optimizer.optimizer
        if isinstance(optimizer, Optimizer) and not is_called_by("_initial_step"):
            num_steps = self.steps_of.get(optimizer, 0) + self.num_skipped
            first = {"kind": type(scheduler).__name__, "num": 0, "num_before": num_steps, "num_steps": -1}
            counted = self.schedulers.setdefault(id(scheduler), first)
            # A step of a wrapper may be several, as Accelerate's is one for each rank.
            if counted["num_steps"] != num_steps or not is_called_by("step"):
                counted |= {"num": counted["num"] + 1, "num_steps": num_steps}

    def note_index(self, index: Any, iterator: Any) -> None:
        if index is None:
            return
        dataset, indices = iterator._dataset, index if isinstance(index, list) else [index]
        while hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
            indices, dataset = [dataset.indices[place] for place in indices], dataset.dataset
        if not hasattr(iterator, "tandem_pass"):
            size = getattr(dataset, "__len__", lambda: None)()
            iterator.tandem_pass = {
                "dataset": id(dataset), "size": size, "indices": [], "is_cut": False, "num_steps": None, "trains": False, "begins": False,
            }  # fmt: skip
            self.passes += [iterator.tandem_pass] if len(self.passes) < MAX_PASSES else []
        drawn = iterator.tandem_pass["indices"]
        iterator.tandem_pass["is_cut"] = len(drawn) >= MAX_SAMPLES
        drawn += [int(place) for place in indices if place is not None and len(drawn) < MAX_SAMPLES]

    def note_batch(self, batch: Any, iterator: Any) -> None:
        self.last_pass = getattr(iterator, "tandem_pass", None)
        self.num_batches += batch is not None
        if batch is None and self.last_pass:
            self.last_pass["num_steps"] = self.steps

    def end(self) -> None:
        if self.num_backward and self.pid == os.getpid():
            self.close_evaluation()
            trained = [watched for tensor, watched in self.watched.items() if tensor.requires_grad]
            self.write(
                "end", num_steps=self.steps, num_backward=self.num_backward, inactive=self.inactive, passes=self.passes,
                with_gradient=[watched.name for watched in trained if watched.has_gradient],
                without_gradient=[watched.name for watched in trained if not watched.has_gradient and watched.tensor in self.computed],
                samples=list(self.models.values()), random=self.random, schedulers=list(self.schedulers.values()),
                num_skipped_last=self.num_skipped_last,
            )  # fmt: skip


def identity() -> tuple[int, int]:
    """(rank, world size), of whoever communicates for the script."""
    horovod, mpi = sys.modules.get("horovod.torch"), sys.modules.get("mpi4py.MPI")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    if horovod and horovod.is_initialized():
        return horovod.rank(), horovod.size()
    is_running = mpi and mpi.Is_initialized() and not mpi.Is_finalized()
    return (mpi.COMM_WORLD.rank, mpi.COMM_WORLD.size) if mpi and is_running else (0, 1)


def local(tensor: Any) -> Tensor:
    """A tensor, or the shard of it that this rank has."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def unwrapped(module: Any) -> nn.Module:
    inner = getattr(module, "module", getattr(module, "_orig_mod", None))
    return unwrapped(inner) if isinstance(inner, nn.Module) else module


def bare(name: str) -> str:
    return WRAPPERS.sub("", name)


def parameters_in(state: Any) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of what is saved: a model, or a dictionary that has one's parameters somewhere."""
    for name, value in (state.state_dict() if isinstance(state, nn.Module) else state if isinstance(state, dict) else {}).items():
        yield from [(str(name), value)] if isinstance(value, Tensor) else parameters_in(value)


def as_numbers(observed: Any) -> Any:
    """What was observed, with numbers in the places of tensors, which take one transfer from the device."""
    tensors = [leaf for leaf in tree_leaves(observed) if isinstance(leaf, Tensor)]
    flat = [tensor.reshape(-1).to(tensors[0].device, torch.float64) for tensor in tensors]
    numbers = iter(torch.cat(flat).tolist() if flat else [])

    def plain(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return [next(numbers) for _ in range(len(leaf))] if leaf.dim() else next(numbers)

    return tree_map(plain, observed)


def is_called_by(name: str) -> bool:
    """Whether a function of this name has not returned yet."""
    frame = sys._getframe().f_back
    while frame and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame is not None

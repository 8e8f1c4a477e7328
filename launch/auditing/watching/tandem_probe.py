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
import sys
import warnings
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from types import GeneratorType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer, lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import dataloader

NUM_SUMS, NUM_ELEMENTS = 4, 1024
MAX_SAMPLES, MAX_PASSES, MAX_EVALUATIONS = 20_000, 20, 100
DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
LOSSES = ("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")
# What wrappers put into the name of a parameter.
PREFIXES = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")

Action = Callable[..., Any]


def install_if_audited() -> None:
    if "TANDEM_AUDIT_FOLDER" in os.environ:
        install(os.environ["TANDEM_AUDIT_FOLDER"], int(os.environ["TANDEM_AUDIT_STEPS"]))


def install(folder: str, num_steps: int) -> None:
    """Watches this process from now on, and its gradients for a number of steps; writes to a file in a folder."""
    probe = Probe(folder, num_steps)
    probe.guarded(probe.install)()


class Watched:
    """A parameter of the model, and the gradients that arrived at it since the last step of its optimizer."""

    def __init__(self, name: str, tensor: Tensor, module: nn.Module) -> None:
        self.name, self.tensor, self.module, self.has_gradient = name, tensor, module, False
        self.forget()

    def forget(self) -> None:
        # What was there before, and what arrived.
        self.arrived: list[tuple[Tensor | None, Tensor]] = []
        self.before_clipping: Tensor | None = None

    def gradient_alone(self) -> Tensor | None:
        """The gradient that this rank computed."""
        before, arriving = self.arrived[-1] if self.arrived else (None, None)
        return arriving if before is None or arriving is None else before + arriving

    def is_carried(self) -> bool:
        """Whether the gradient of an earlier step is still there: each one since then was added to something."""
        return bool(self.arrived) and all(before is not None and bool(before.any()) for before, _ in self.arrived)


class Probe:
    """Puts itself around functions of PyTorch, which do what they did."""

    def __init__(self, folder: str, num_steps: int) -> None:
        self.folder, self.num_steps, self.pid, self.failed = folder, num_steps, 0, False
        self.weights = torch.randn(NUM_SUMS, NUM_ELEMENTS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        # By the ids of parameters and models, which are kept, so that no id is given again.
        self.watched: dict[int, Watched] = {}
        self.models: dict[int, int] = {}
        self.kept: list[Any] = []
        self.passes: list[dict[str, Any]] = []
        self.last_pass: dict[str, Any] | None = None
        # Modules that were computed for training; whether one is being computed; the modes of its layers for which the mode matters.
        self.ran: set[int] = set()
        self.inside = self.trains = False
        self.layers: set[bool] = set()
        self.computed: list[tuple[str, bool, set[bool]]] = []
        self.modes: Counter[tuple[str, bool, bool]] = Counter()
        self.evaluation: dict[str, Any] = {}
        self.evaluated: tuple[nn.Module, dict[str, list[float]]] | None = None
        # Parameters after a number of steps.
        self.values: tuple[int, dict[str, list[float]]] = 0, {}
        self.num_evaluations, self.random, self.orders = 0, [], Counter()
        # Of each model.
        self.samples: defaultdict[int, list[float]] = defaultdict(list)
        self.num_backward, self.steps, self.num_skipped, self.num_skipped_last = 0, 0, 0, 0
        # Calls inside each other: a part that is computed again calls backward, and a wrapper's step calls that of its optimizer.
        self.open_backwards, self.open_steps = 0, 0
        self.steps_of: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
        self.schedulers: dict[int, dict[str, Any]] = {}
        self.scale: Tensor | None = None
        self.loss_functions: dict[Any, tuple[Any, Any]] = {}
        self.begin_step([])

    def install(self) -> None:
        nn.Module.__call__ = functools.wraps(nn.Module.__call__)(_bound(self.call_module, nn.Module.__call__))
        self.watch_calls(torch.autograd, ["backward"], self.before_backward, self.after_backward)
        self.watch_calls(functional, LOSSES, after=self.note_loss)
        self.watch_calls(functional, DROPOUTS, self.note_dropout)
        self.watch_calls(dataloader._BaseDataLoaderIter, ["_next_index"], after=self.note_index)
        self.watch_calls(dataloader._BaseDataLoaderIter, ["__next__"], after=self.note_batch)
        # Persistent workers have one iterator for all epochs.
        self.watch_calls(dataloader._BaseDataLoaderIter, ["_reset"], lambda iterator, *_, **__: vars(iterator).pop("tandem_pass", None))
        self.watch_calls(torch, ["randperm"], after=self.note_order)
        self.watch_calls(torch.amp.GradScaler, ["step"], self.before_scaler, self.after_scaler)
        self.watch_calls(nn.Module, ["load_state_dict"], self.keep_values)
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
        """Has actions done before and after calls of functions; the second ones get the result, which is None after an exception."""

        def around(plain: Action, *arguments: Any, **named: Any) -> Any:
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

        for name in names:
            plain = getattr(owner, name)
            setattr(owner, name, functools.wraps(plain)(_bound(around, plain)))

    def guarded(self, action: Action | None) -> Action:
        """An action that disturbs nothing: if it fails, the probe is silent from then on."""

        def run(*arguments: Any, **named: Any) -> None:
            if action and not self.failed:
                try:
                    with torch.no_grad(), warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        action(*arguments, **named)
                except Exception as error:
                    self.failed = True
                    with contextlib.suppress(Exception):
                        self.write_rank("failed", error=f"{type(error).__name__}: {error}")

        return run

    def write(self, event: str, **fields: Any) -> None:
        if self.pid != os.getpid():
            self.pid = os.getpid()
            self.file = open(os.path.join(self.folder, f"{os.uname().nodename}-{self.pid}.jsonl"), "w", buffering=1)  # noqa: SIM115
        self.file.write(json.dumps({"event": event, **fields}) + "\n")

    def write_rank(self, event: str, **fields: Any) -> None:
        rank, world_size = identity()
        self.write(event, rank=rank, world_size=world_size, **fields)

    def project(self, tensor: Tensor) -> Tensor:
        """The sums of a tensor, or of this rank's shard of it."""
        flat = local(tensor.detach()).to_dense().reshape(-1)
        flat = flat[:: max(1, len(flat) // NUM_ELEMENTS)][:NUM_ELEMENTS]
        self.weights = self.weights.to(flat.device)
        return self.weights[:, : len(flat)] @ flat.double()

    def call_module(self, plain: Action, module: nn.Module, *arguments: Any, **named: Any) -> Any:
        """Only what the script itself calls is a model; what is called inside of it is a part."""
        is_model = not self.inside and next(module.parameters(), None) is not None
        if self.failed or not is_model or torch.compiler.is_compiling():
            if self.inside and isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats:
                self.layers.add(module.training)
            if self.inside and self.trains and torch.is_grad_enabled():
                self.ran.add(id(module))
            return plain(module, *arguments, **named)
        self.inside, self.trains = True, torch.is_grad_enabled()
        try:
            self.guarded(self.before_model)(module, list(tensors_in((arguments, list(named.values())))))
            return plain(module, *arguments, **named)
        finally:
            self.inside = False
            self.guarded(self.after_model)()

    def before_model(self, module: nn.Module, inputs: list[Tensor]) -> None:
        batches = [local(tensor.detach()) for tensor in inputs if tensor.dim() and not tensor.requires_grad]
        columns = [tensor for tensor in batches if len(tensor) == len(batches[0])]
        plain = unwrapped(module)
        kind = type(plain).__name__
        if not self.trains:
            self.evaluate(module, kind, columns)
            return
        self.close_evaluation()
        # They hold the graphs of their losses, of which a script that evaluates with gradients makes many.
        self.loss_functions = {}
        # With torch.func other tensors are in the places of parameters for a while.
        tensors = [tensor for tensor in module.parameters() if isinstance(tensor, nn.Parameter)]
        # Where parameters are sharded, whole ones are in their places for a while.
        is_sharded = id(plain) in self.models and any(hasattr(watched.tensor, "to_local") for watched in self.watched.values())
        is_new = any(id(tensor) not in self.watched for tensor in tensors) and self.steps < self.num_steps and not is_sharded
        if is_new and any(tensor.requires_grad for tensor in tensors):
            self.watch(module, kind)
        if id(plain) in self.models:
            self.ran.add(id(plain))
            self.layers = set()
            self.computed.append((kind, module.training, self.layers))
            samples = self.samples[self.models[id(plain)]]
            samples += self.recognize(columns) if len(samples) < MAX_SAMPLES else []

    def recognize(self, columns: list[Tensor]) -> list[float]:
        """A number for each sample of a batch, by which it is known again on another rank, in another epoch and in evaluation."""
        total = None
        for number, column in enumerate(columns):
            rows = column.reshape(len(column), -1)
            rows = rows[:, :: max(1, rows.shape[1] // NUM_ELEMENTS)][:, :NUM_ELEMENTS].cpu()
            # A few integers do not tell one sample from another.
            if rows.is_floating_point() or rows.shape[1] >= 4:
                digests = rows.double() @ self.weights[number % NUM_SUMS, : rows.shape[1]].cpu()
                total = digests if total is None else total + digests
        return [] if total is None else [float(f"{digest:.9g}") for digest in total.tolist()]

    def watch(self, module: nn.Module, kind: str) -> None:
        """Watches the parameters of a model from its first training on, and those that replace them later."""
        place = self.models.setdefault(id(unwrapped(module)), len(self.models))
        prefix = f"{kind}{place}." if place else ""
        owners = {id(tensor): part for part in module.modules() for tensor in part._parameters.values()}
        earlier = {watched.name: key for key, watched in self.watched.items()}
        sizes = {}
        for name, tensor in module.named_parameters():
            if id(tensor) not in self.watched and isinstance(tensor, nn.Parameter):
                watched = Watched(prefix + bare(name), tensor, owners[id(tensor)])
                sizes[watched.name] = [local(tensor).numel(), tensor.numel()]
                if watched.name in earlier:
                    self.kept.append(self.watched.pop(earlier[watched.name]))
                self.watched[id(tensor)] = watched
                if tensor.requires_grad:
                    tensor.register_hook(functools.partial(self.guarded(self.gradient_arrives), watched))
        self.kept.append(unwrapped(module))
        self.write("model", sizes=sizes, buffers={} if self.steps else self.buffers_of(module))

    def buffers_of(self, module: nn.Module) -> dict[str, list[float]]:
        """The size and the numbers of each buffer."""
        return {
            bare(name): [tensor.numel(), *self.project(tensor).tolist()]
            for name, tensor in module.named_buffers()
            if tensor.is_floating_point()
        }

    def gradient_arrives(self, watched: Watched, gradient: Tensor) -> None:
        """Of this rank alone, before anybody averages it; PyTorch adds it to what `grad` has."""
        watched.has_gradient = True
        if self.steps < self.num_steps:
            earlier = watched.tensor.grad
            watched.arrived.append((None if earlier is None else self.project(earlier), self.project(gradient)))

    def note_dropout(self, input: Tensor, p: float = 0.5, training: bool = True, *_: Any, **__: Any) -> None:
        if self.inside and p:
            self.layers.add(bool(training))
            if training and self.trains and len(self.random) < 3:
                state = torch.cuda.get_rng_state(input.device) if input.is_cuda else torch.get_rng_state()
                self.random.append(zlib.crc32(bytes(state.tolist())))

    def evaluate(self, module: nn.Module, kind: str, columns: list[Tensor]) -> None:
        """Of calls without gradients between two of training: which model it is, in which mode, on which samples."""
        self.layers = set()
        # PyTorch's own means for the statistics of averaged weights.
        if is_called_by("update_bn"):
            return
        if not self.evaluation and self.steps and self.num_evaluations < MAX_EVALUATIONS:
            self.num_evaluations += 1
            self.keep_values()
            self.evaluated = module, self.buffers_of(module)
            self.evaluation = {
                "steps": self.steps, "kind": kind, "is_trained": any(id(tensor) in self.watched for tensor in module.parameters()),
                "layers": self.layers, "samples": {}, "changed": [], "parameters": self.compare(module.named_parameters()),
                "model": self.models.get(id(unwrapped(module))),
            }  # fmt: skip
        if self.evaluation:
            self.layers, by_pass = self.evaluation["layers"], self.evaluation["samples"]
            # Of one pass of a loader, or of one call.
            key = id(self.last_pass) if self.last_pass and self.last_pass["num_steps"] is None else len(by_pass)
            by_pass[key] = by_pass.get(key, []) + (self.recognize(columns) if sum(map(len, by_pass.values())) < MAX_SAMPLES else [])

    def after_model(self) -> None:
        """Of the first call of an evaluation: which buffers it changes. Later a script may put others in their places."""
        if self.evaluated and not self.trains:
            module, buffers = self.evaluated
            # As texts, since NaN is not equal to itself. A cache that grows does no harm.
            after = {name: numbers for name, numbers in self.buffers_of(module).items() if numbers[0] == buffers.get(name, [None])[0]}
            self.evaluation["changed"] = [name for name, numbers in after.items() if str(numbers) != str(buffers[name])]
            self.evaluated = None

    def close_evaluation(self) -> None:
        if self.evaluation:
            lists = {"layers": [*self.evaluation["layers"]], "samples": [*self.evaluation["samples"].values()]}
            self.write("evaluation", **self.evaluation | lists)
            self.evaluation = {}

    def keep_values(self, *_: Any, **__: Any) -> None:
        """The parameters after a step, before a script evaluates or loads others, which may be done on one rank alone."""
        if self.values[0] != self.steps:
            numbers = as_numbers({watched.name: [self.project(watched.tensor)] for watched in self.watched.values()})
            self.values = self.steps, {name: value for name, (value,) in numbers.items()}

    def compare(self, named_tensors: Iterable[tuple[str, Tensor]]) -> list[list[Any]]:
        """[name, parameter, trained parameter of its name] of a model or a file, which may have several of a name, as with averages."""
        trained = {watched.name: watched.tensor for watched in self.watched.values()}
        compared = [(bare(name), tensor) for name, tensor in named_tensors]
        same = [(name, tensor) for name, tensor in compared if name in trained and local(tensor).shape == local(trained[name]).shape]
        numbers = as_numbers({str(place): [self.project(tensor), self.project(trained[name])] for place, (name, tensor) in enumerate(same)})
        return [[name, *pair] for (name, _), pair in zip(same, numbers.values(), strict=True)]

    def note_saved(self, obj: Any, *_: Any, **__: Any) -> None:
        if self.steps:
            self.write("saved", steps=self.steps, parameters=self.compare(parameters_in(obj)))

    def note_loss(self, loss: Tensor | None, input: Tensor, target: Tensor, *_: Any, **options: Any) -> None:
        """How many terms a loss has, and by what their mean is multiplied in it."""
        if isinstance(loss, Tensor) and loss.requires_grad and not loss.dim():
            is_counted = not target.is_floating_point()
            num_terms = (target != options.get("ignore_index", -100)).sum() if is_counted else input.numel()
            self.loss_functions[loss.grad_fn] = num_terms, num_terms if options.get("reduction") == "sum" else 1

    def before_backward(self, tensors: Any, *_: Any, **__: Any) -> None:
        self.open_backwards += 1
        if self.open_backwards > 1:
            return
        # Parts of the model may be computed again meanwhile.
        self.inside = True
        loss = tensors if isinstance(tensors, Tensor) else tensors[0]
        if not self.num_backward:
            # By now the ranks have met.
            self.write_rank("trains")
        self.num_backward += 1
        # An attack on the inputs may be computed in evaluation mode before.
        in_training = {kind for kind, training, _ in self.computed if training}
        for kind, training, layers in self.computed:
            self.modes[kind, training or kind in in_training, layers == {False}] += 1
        self.computed = []
        if self.last_pass:
            self.last_pass["trains"] = True
        if self.steps < self.num_steps and loss.numel() == 1:
            self.losses.append([local(loss.detach()).reshape(()), *self.terms_of(loss.grad_fn)])
        self.loss_functions = {}

    def after_backward(self, *_: Any, **__: Any) -> None:
        self.open_backwards -= 1
        self.inside = self.open_backwards > 0

    def terms_of(self, function: Any) -> tuple[Any, Any]:
        """(number of terms, factor) of a loss that is a multiple of one loss function; without the number where its graph does not say."""
        factor = 1.0
        while function not in self.loss_functions:
            kind, places = type(function).__name__, [place for place, (following, _) in enumerate(function.next_functions) if following]
            constant = getattr(function, "_saved_self" if places == [1] else "_saved_other", None)
            if len(places) != 1 or kind not in ("MulBackward0", "DivBackward0", "ToCopyBackward0"):
                return None, factor
            if kind != "ToCopyBackward0":
                if constant is None or constant.numel() != 1:
                    return None, factor
                factor = factor / constant if kind == "DivBackward0" else factor * constant
            function = function.next_functions[places[0]][0]
        num_terms, factor_of_mean = self.loss_functions[function]
        return num_terms, factor * factor_of_mean

    def before_clipping(self, parameters: Any, *_: Any, **__: Any) -> None:
        for tensor in [parameters] if isinstance(parameters, Tensor) else parameters:
            if id(tensor) in self.watched and tensor.grad is not None and self.steps < self.num_steps:
                self.watched[id(tensor)].before_clipping = self.project(tensor.grad)

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
        self.open_steps += 1
        closure = arguments[1] if len(arguments) > 1 else named.get("closure")
        if not callable(closure):
            self.guarded(self.observe)(optimizer)
            return None
        num_calls = 0

        def observed() -> Any:
            nonlocal num_calls
            num_calls += 1
            # Of several calls, as of LBFGS, the last counts.
            if num_calls > 1:
                self.begin_step(self.stepped_by(optimizer))
            loss = closure()
            self.guarded(self.observe)(optimizer)
            return loss

        return ((arguments[0], observed, *arguments[2:]), named) if len(arguments) > 1 else (arguments, named | {"closure": observed})

    def stepped_by(self, optimizer: Optimizer) -> list[Watched]:
        tensors = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
        return [watched for key, watched in self.watched.items() if key in tensors]

    def observe(self, optimizer: Optimizer) -> None:
        # Without gradients so far a library only makes the state of the optimizer.
        if self.steps >= self.num_steps or not self.num_backward:
            return
        sums: dict[str, list[Tensor | None]] = {watched.name: [self.project(watched.tensor)] for watched in self.watched.values()}
        for watched in self.watched.values():
            watched.has_gradient |= watched.tensor.grad is not None
        stepped = self.stepped_by(optimizer)
        for watched in stepped:
            applied = None if watched.tensor.grad is None else self.project(watched.tensor.grad)
            sums[watched.name] += [applied, watched.gradient_alone(), watched.before_clipping]
        numbers = as_numbers(sums)
        gradients = {
            watched.name: [*numbers[watched.name][1:], len(watched.arrived), watched.is_carried(), watched.tensor.requires_grad]
            for watched in stepped
        }
        values = {name: of_name[0] for name, of_name in numbers.items()}
        self.step = {
            "optimizer": type(optimizer).__name__, "values": values, "gradients": self.step.get("gradients", {}) | gradients,
            "rates": [float(group["lr"]) for group in optimizer.param_groups if "lr" in group],
            "num_batches": self.num_batches, "scale": 1.0 if self.scale is None else float(self.scale),
            "losses": [[None if number is None else float(number) for number in loss] for loss in self.losses],
        }  # fmt: skip

    def after_step(self, optimizer: Optimizer) -> None:
        self.open_steps -= 1
        if not self.open_steps and self.num_backward:
            self.steps += 1
            if optimizer not in self.steps_of and self.last_pass:
                self.last_pass["begins"] = True
            self.steps_of[optimizer] = self.steps_of.get(optimizer, 0) + 1
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
                "dataset": id(dataset), "size": size, "indices": [], "num_steps": None, "trains": False, "begins": False,
            }  # fmt: skip
            self.passes += [iterator.tandem_pass] if len(self.passes) < MAX_PASSES else []
        drawn = iterator.tandem_pass["indices"]
        drawn += [int(place) for place in indices if place is not None and len(drawn) < MAX_SAMPLES]

    def note_batch(self, batch: Any, iterator: Any) -> None:
        self.last_pass = getattr(iterator, "tandem_pass", None)
        self.num_batches += batch is not None
        if batch is None and self.last_pass:
            self.last_pass["num_steps"] = self.steps

    def note_order(self, order: Tensor | None, *_: Any, **__: Any) -> None:
        if order is not None and len(order) > 8:
            self.orders[zlib.crc32(str(order[:64].tolist()).encode())] += 1

    def end(self) -> None:
        if not self.num_backward or self.pid != os.getpid():
            return
        self.close_evaluation()
        for loader_pass in self.passes:
            self.write("pass", is_cut=len(loader_pass["indices"]) == MAX_SAMPLES, **loader_pass)
        watched = list(self.watched.values())
        trained = [parameter for parameter in watched if parameter.tensor.requires_grad]
        self.keep_values()
        self.write(
            "end", num_steps=self.steps, num_backward=self.num_backward, samples=list(self.samples.values()), random=self.random,
            values=self.values[1],
            with_gradient=[parameter.name for parameter in trained if parameter.has_gradient],
            without_gradient=[p.name for p in trained if not p.has_gradient and id(p.module) in self.ran],
            modes=[[*mode, number] for mode, number in self.modes.items()], schedulers=list(self.schedulers.values()),
            num_skipped_last=self.num_skipped_last, num_equal_orders=max(self.orders.values(), default=0),
        )  # fmt: skip


def _bound(around: Action, plain: Action) -> Action:
    """A function, as a method of a class has to be."""
    return lambda *arguments, **named: around(plain, *arguments, **named)


def identity() -> tuple[int, int]:
    """(rank, world size), of whoever communicates for the script."""
    horovod, mpi = sys.modules.get("horovod.torch"), sys.modules.get("mpi4py.MPI")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    if horovod and horovod.is_initialized():
        return horovod.rank(), horovod.size()
    return (mpi.COMM_WORLD.rank, mpi.COMM_WORLD.size) if mpi and mpi.Is_initialized() else (0, 1)


def local(tensor: Any) -> Tensor:
    """A tensor, or the shard of it that this rank has."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def unwrapped(module: Any) -> nn.Module:
    inner = getattr(module, "module", getattr(module, "_orig_mod", None))
    return unwrapped(inner) if isinstance(inner, nn.Module) else module


def bare(name: str) -> str:
    """The name of a parameter without what wrappers put into it."""
    return functools.reduce(lambda short, prefix: short.replace(prefix, ""), PREFIXES, name)


def tensors_in(batch: Any) -> Iterator[Tensor]:
    """The tensors of a batch, whatever contains them."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, (list, tuple)) or callable(getattr(batch, "values", None)):
        for part in batch if isinstance(batch, (list, tuple)) else batch.values():
            yield from tensors_in(part)


def parameters_in(state: Any) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of what is saved: a model, or a dictionary that has one's parameters somewhere."""
    for name, value in (state.state_dict() if isinstance(state, nn.Module) else state if isinstance(state, dict) else {}).items():
        yield from [(str(name), value)] if isinstance(value, Tensor) else parameters_in(value)


def as_numbers(sums: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The numbers of projections, some of which may be None, with one transfer from the device."""
    present = [tensor for of_name in sums.values() for tensor in of_name if tensor is not None]
    numbers = iter(torch.stack([tensor.to(present[0].device) for tensor in present]).tolist() if present else [])
    return {name: [None if tensor is None else next(numbers) for tensor in of_name] for name, of_name in sums.items()}


def is_called_by(name: str) -> bool:
    """Whether a function of this name has not returned yet."""
    frame = sys._getframe().f_back
    while frame and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame is not None

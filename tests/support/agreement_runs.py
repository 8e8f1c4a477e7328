"""The runs by which tests/frameworks/test_agreement.py compares the backends, and which of them each backend makes."""

from typing import NamedTuple

import pytest

from common.backends import declared, file_of, settings_of
from common.config import Settings, as_arguments
from common.cost import parallelism
from tests.support.backends import VARIANTS, trains

STAGES = (1, 2, 3)
WORKLOADS = ("cnn", "transformer")
OPTIMIZERS = ("sgd", "adam")
# One epoch of 41 steps, the last of them padded unevenly over the ranks, with warm-up for two thirds of it.
SAME_TRAINING = (
    "--scaling", "strong", "--batch-size", "8", "--last-batch", "pad", "--epochs", "1", "--learning-rate-factor", "4", 
    "--warmup-epochs", "0.66",
)  # fmt: skip
# The same in micro-batches of 2 samples, at two ranks of one sample.
MICRO_BATCHES = (*(("2" if word == "8" else word) for word in SAME_TRAINING), "--accumulate", "4")
# For three steps of 8.
FEW_SAMPLES = 20


class Run(NamedTuple):
    """One of the runs that the processes of a backend do in turn."""

    workload: str
    optimizer: str
    precision: str = "fp64"
    learning_rate: str | None = None
    variant: int | str | None = None
    short: bool = False
    fault: str = "none"
    training: tuple = SAME_TRAINING

    def arguments(self, data, backend="single"):
        what = (*data[self.short][self.workload], "--optimizer", self.optimizer, "--precision", self.precision)
        learning_rate = ("--learning-rate", self.learning_rate) if self.learning_rate else ()
        variant = as_arguments(settings_of(f"{backend}@{self.variant}", Settings())) if self.variant is not None else ()
        return (*self.training, *what, *learning_rate, *variant)


FLOAT64 = [Run(workload, optimizer) for workload in WORKLOADS for optimizer in OPTIMIZERS]
NOT_FUSED = [run._replace(fault="not_fused") for run in FLOAT64]
FLOAT32 = [run._replace(precision="fp32") for run in FLOAT64]
# Also at 1 and at 4 ranks. Not Adam, whose steps do not depend on the scale of the gradients.
CNN = Run("cnn", "sgd")
# At the CNN's default learning rate training amplifies the rounding of DeepSpeed's master parameters to float32; at this one not.
SMALL_LEARNING_RATE = CNN._replace(learning_rate="1e-5")
FIRST_STEPS = [Run(workload, optimizer, "fp32", short=True) for workload, optimizer in zip(WORKLOADS, OPTIMIZERS, strict=True)]
# Mixed precision. At the CNN's default learning rate training amplifies the difference to float32, to 2e-2 in the second step.
MIXED = [run._replace(precision="bf16", learning_rate=rate) for run, rate in zip(FIRST_STEPS, ("4e-4", None), strict=True)]
NOT_MIXED = [run._replace(precision="fp32") for run in MIXED]
# With SGD, since Adam's steps do not depend on the scale of the gradients.
MIXED_SGD = Run("transformer", "sgd", "bf16", short=True)
MIXED_SUMMED = MIXED_SGD._replace(fault="summed_gradients")

# Of the variants of exact backends.
VARIED = [CNN, Run("transformer", "adam")]
# Of backends that do not train the CNN, in its place; and where the CNN's training amplifies a difference.
DECODER = Run("transformer", "sgd")

ACCUMULATED = [run._replace(training=MICRO_BATCHES) for run in VARIED]
# For ZeRO, as where a fault is injected: with SGD, since Adam's steps do not depend on the scale of the gradients.
ACCUMULATED_SGD = Run("transformer", "sgd", training=MICRO_BATCHES)
ACCUMULATED_FLOAT32 = ACCUMULATED_SGD._replace(precision="fp32")

WEAK = Run("cnn", "sgd", training=("--epochs", "1", "--warmup-epochs", "0.5", "--batch-size", "8"))
TWICE_THE_BATCH = WEAK._replace(training=(*WEAK.training[:-1], "16", "--learning-rate-factor", "2"))

# Local SGD that averages the parameters after every step.
EVERY_STEP = [Run("cnn", optimizer, variant=1) for optimizer in OPTIMIZERS]
# Post-local SGD that is local from the first step, after 20 of 41 steps, and never.
LOCAL_FROM_THE_START = [run._replace(training=(*SAME_TRAINING, "--local-after", "0")) for run in (*EVERY_STEP, DECODER)]
LOCAL_LATER = DECODER._replace(training=(*SAME_TRAINING, "--local-after", "20"))
NEVER_LOCAL = Run("cnn", "adam")

# How gradients are reduced: {variant: bounds of the loss difference over the first 20 steps}. The CNN's training amplifies it.
REDUCED = {
    "ddp@fp16": (1e-7, 1e-4), "ddp@bf16": (1e-7, 1e-3), "horovod_torch@fp16": (1e-7, 1e-4), "ddp@powersgd": (1e-3, 0.3),
    "horovod_torch@adasum": (1e-3, 0.3), "fsdp@bf16": (1e-7, 1e-3),
}  # fmt: skip
FULL_RANK = DECODER._replace(variant="powersgd", fault="compressed_at_any_rank", training=(*SAME_TRAINING, "--powersgd-rank", "1000"))
WARMED_UP_FOR_LESS = DECODER._replace(variant="powersgd", fault="warmed_up_for_less")

# With an embedding that is the head too; of DeepSpeed, with SGD, as where a fault is injected.
TIED = {optimizer: Run("transformer", optimizer, fault="tied") for optimizer in OPTIMIZERS}
# Their ranks hold parts of the embedding, or gather it, in other ways.
TIED_VARIANTS = ("fsdp@keep", "fsdp@hsdp")

# Whichever of both the processor computes in.
STAGE_3 = Run("transformer", "sgd", short=True)
PROCESSORS = [STAGE_3._replace(variant=3, fault=fault) for fault in ("float16_supported", "float16_not_supported")]

# With activations that are computed again; under ZeRO in stages without and with shards of parameters, which are then gathered again.
RECOMPUTED = STAGE_3._replace(training=(*SAME_TRAINING, "--recompute"))
RECOMPUTED_STAGES = (1, 3)

# Float32 runs under stage 0 and DDP whose gradients are added up in the same order.
IN_RANK_ORDER = [run._replace(fault="in_rank_order") for run in FLOAT32 if run.workload == "cnn"]
RESTORED = [
    Run("cnn", optimizer, "fp32", variant=stage, short=True, fault="restored") for stage in (0, *STAGES) for optimizer in OPTIMIZERS
]

# DataParallel where there are no GPUs for it.
WITHOUT_GPUS = CNN._replace(fault="without_gpus", training=(*SAME_TRAINING, "--device", "cpu"))
# Every epoch is one step, which each worker of a server takes from the same parameters. Without momentum the sum of their updates is the
# update with the average gradient.
ONE_STEP = Run("cnn", "sgd", short=True, training=(
    "--scaling", "strong", "--batch-size", "20", "--epochs", "6", "--no-stop-at-target", "--momentum", "0", "--learning-rate-factor", "4",
    "--warmup-epochs", "3.5",
))  # fmt: skip
ASYNCHRONOUS = Run("cnn", "sgd", training=(
    "--scaling", "strong", "--batch-size", "8", "--last-batch", "pad", "--epochs", "3", "--no-stop-at-target",
))  # fmt: skip
LEFT_OUT = ASYNCHRONOUS._replace(fault="worker_fails_in_step_20")

# Of backends that make other runs than most.
OWN_RUNS = {
    "data_parallel": [WITHOUT_GPUS],
    "post_local_sgd": [*LOCAL_FROM_THE_START, LOCAL_LATER, NEVER_LOCAL],
    "weight_averaging": [*EVERY_STEP, EVERY_STEP[0]._replace(training=MICRO_BATCHES), DECODER],
}

# The one after which the ranks differ, so that no other run may follow it, is the last.
FAULTS = ("summed_gradients", "same_shard", "no_all_reduce")
SIZES = (1, 2, 3, 4)


def degree(backend, ranks, workload="transformer"):
    """The data-parallel degree of a backend; 0 where it cannot train at this number of ranks."""
    settings = Settings(workload=workload)
    return 0 if parallelism.problem(backend, settings, ranks) else parallelism.degree(backend, settings, ranks)


def ranks_of_faults(backend):
    """The number of ranks at which a backend is broken: one at which it has two shards, if any."""
    return next((ranks for ranks in SIZES if degree(backend, ranks) == 2), 2)


def faults_of(backend):
    """The faults of a backend; where it has one shard, all ranks read the same one anyway."""
    return [fault for fault in FAULTS if fault != "same_shard" or degree(backend, ranks_of_faults(backend)) > 1]


def trained_by(backend, runs):
    """The runs whose workloads a backend trains; CNN is replaced by DECODER where it does not train the CNN."""
    if trains(backend, "cnn"):
        return runs
    return [run for run in dict.fromkeys(DECODER if run == CNN else run for run in runs) if trains(backend, run.workload)]


def accumulated_by(backend):
    """The run in micro-batches that a backend trains; a pipeline has micro-batches of its own."""
    return [] if declared()[backend].pipelined else trained_by(backend, ACCUMULATED)[:1]


def faulty(name, fault):
    backend, _, variant = name.partition("@")
    # Not the CNN for ZeRO: at its default learning rate even a correct run differs. So does local SGD, but for a period of 1.
    if backend == "parameter_server":
        return ONE_STEP._replace(fault=fault)
    if backend == "post_local_sgd":
        return LOCAL_FROM_THE_START[0]._replace(fault=fault, short=True)
    run = DECODER if backend == "deepspeed_zero" or variant else trained_by(backend, [CNN])[0]
    return run._replace(variant=1 if backend == "weight_averaging" else variant or None, fault=fault, short=True)


def runs_of(backend, ranks):
    """The runs of a backend at a number of ranks."""
    if backend == "single":
        fixed = [*TIED.values(), *FLOAT64, *accumulated_by(backend), SMALL_LEARNING_RATE]
        few = [*FIRST_STEPS, *MIXED, NOT_MIXED[0], MIXED_SGD, CNN._replace(short=True), STAGE_3, RECOMPUTED]
        return [*fixed, *few, TWICE_THE_BATCH, ONE_STEP]
    if backend == "deepspeed_zero":
        return zero_runs(ranks)
    if backend == "parameter_server":
        return FLOAT64 if ranks == 2 else [ONE_STEP, ASYNCHRONOUS, *faulty_runs(backend), LEFT_OUT]
    if backend in OWN_RUNS:
        return OWN_RUNS[backend] + (faulty_runs(backend) if ranks > 1 else [])
    own = ddp_runs(ranks) if backend == "ddp" else []
    own += reduced_runs(backend, ranks)
    own += faulty_runs(backend) if ranks == ranks_of_faults(backend) else []
    if ranks != 2:
        return [*trained_by(backend, [CNN]), *own]
    # First, since Horovod cannot be started over Gloo after MPI.
    names = [name for name in VARIANTS if file_of(name) == backend]
    variants = [run._replace(variant=name.partition("@")[2]) for name in names for run in trained_by(backend, VARIED)]
    variants += [TIED["adam"]._replace(variant=name.partition("@")[2]) for name in TIED_VARIANTS if file_of(name) == backend]
    tied = [] if declared()[backend].untied else [TIED["adam"]]
    exact = trained_by(backend, [*FLOAT64, *FIRST_STEPS, *MIXED])
    return [*variants, *tied, *exact, *accumulated_by(backend), RECOMPUTED, *own]


def ddp_runs(ranks):
    """The runs that only DDP makes, to compare others with."""
    if ranks == 2:
        return [*FLOAT32, ACCUMULATED_FLOAT32, WEAK, MIXED_SUMMED, *(run._replace(fault="float32_masters") for run in FLOAT64)]
    return [SMALL_LEARNING_RATE._replace(precision="fp32"), *IN_RANK_ORDER] if ranks == 4 else []


def reduced_runs(backend, ranks):
    """The runs of variants that reduce gradients in another way."""
    variants = [name.partition("@")[2] for name in REDUCED if file_of(name) == backend]
    if not variants or ranks == 1:
        return []
    runs = [DECODER._replace(variant=variant) for variant in variants]
    *in_sync, last = faulty_runs(f"{backend}@fp16") if "fp16" in variants else [None]
    if ranks != 2:
        return [*runs, *([last] if last else [])]
    full_rank = [FULL_RANK, WARMED_UP_FOR_LESS] if "powersgd" in variants else []
    return [*runs, *full_rank, *in_sync]


def zero_runs(ranks):
    """The runs of DeepSpeed's ZeRO; stage 0 trains in float32 only."""
    sharded = [TIED["sgd"], *NOT_FUSED, *FLOAT64[2:], ACCUMULATED_SGD, *FIRST_STEPS, *MIXED] if ranks == 2 else [SMALL_LEARNING_RATE]
    unsharded = [*FLOAT32, ACCUMULATED_FLOAT32] if ranks == 2 else ddp_runs(ranks)
    runs = [run._replace(variant=stage) for stage in STAGES for run in sharded] + [run._replace(variant=0) for run in unsharded]
    recomputed = [run._replace(variant=stage) for stage in RECOMPUTED_STAGES for run in (STAGE_3, RECOMPUTED)]
    others = {2: [*PROCESSORS, *recomputed, *faulty_runs("deepspeed_zero")], 4: RESTORED}
    return [*runs, *others.get(ranks, [])]


def faulty_runs(backend):
    return [faulty(backend, fault) for fault in faults_of(backend)]


def each_of(backends, runs):
    """Parameters `backend`, `ranks` and `run` from {ranks: runs}, of what each backend trains."""
    return [
        pytest.param(backend, ranks, run, id=f"{backend}-{run.workload}-{run.optimizer}-{ranks}")
        for backend in backends
        for ranks, each in runs.items()
        if degree(backend, ranks)
        for run in trained_by(backend, each)
    ]


def named(name, run):
    """Parameters `name` and `run`, of a backend or a variant."""
    return pytest.param(name, run, id=f"{name}-{run.workload}-{run.optimizer}")


def pairs(runs):
    """Parameters `ranks` and `run` from {ranks: runs}."""
    return [pytest.param(ranks, run, id=f"{run.workload}-{run.optimizer}-{ranks}") for ranks, each in runs.items() for run in each]

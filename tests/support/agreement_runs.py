"""The runs by which tests/frameworks/test_agreement.py compares the backends. Which of them each makes: tests/support/contract.py."""

from typing import NamedTuple

from common.backends import settings_of
from common.config import Settings, as_arguments

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

FULL_RANK = DECODER._replace(variant="powersgd", fault="compressed_at_any_rank", training=(*SAME_TRAINING, "--powersgd-rank", "1000"))
WARMED_UP_FOR_LESS = DECODER._replace(variant="powersgd", fault="warmed_up_for_less")

# With an embedding that is the head too; of DeepSpeed, with SGD, as where a fault is injected.
TIED = {optimizer: Run("transformer", optimizer, fault="tied") for optimizer in OPTIMIZERS}

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

# What only DDP runs, to compare others with.
DDP_ALONE = {
    2: [*FLOAT32, ACCUMULATED_FLOAT32, WEAK, MIXED_SUMMED, *(run._replace(fault="float32_masters") for run in FLOAT64)],
    4: [SMALL_LEARNING_RATE._replace(precision="fp32"), *IN_RANK_ORDER],
}


def of_zero(sharded, unsharded=()):
    """The runs of DeepSpeed's stages with shards, and of stage 0, which trains in float32 only."""
    return [run._replace(variant=stage) for stage in STAGES for run in sharded] + [run._replace(variant=0) for run in unsharded]


ZERO = {
    1: of_zero([SMALL_LEARNING_RATE]),
    2: [
        *of_zero([TIED["sgd"], *NOT_FUSED, *FLOAT64[2:], ACCUMULATED_SGD, *FIRST_STEPS, *MIXED], [*FLOAT32, ACCUMULATED_FLOAT32]),
        *PROCESSORS,
        *(run._replace(variant=stage) for stage in RECOMPUTED_STAGES for run in (STAGE_3, RECOMPUTED)),
    ],
    4: [*of_zero([SMALL_LEARNING_RATE], DDP_ALONE[4]), *RESTORED],
}
# What others are compared with.
PLAIN = [
    *TIED.values(), *FLOAT64, ACCUMULATED[0], SMALL_LEARNING_RATE, *FIRST_STEPS, *MIXED, NOT_MIXED[0], MIXED_SGD, CNN._replace(short=True),
    STAGE_3, RECOMPUTED, TWICE_THE_BATCH, ONE_STEP,
]  # fmt: skip

"""The runs by which tests/frameworks/test_agreement.py compares the backends. Which of them each makes: tests/support/contract.py."""

from typing import NamedTuple

from common.backends import settings_of
from common.config import Settings, as_arguments
from common.declarations import BASELINE
from common.record import environment
from launch.report.questions import same

WORKLOADS = ("cnn", "transformer")
OPTIMIZERS = ("sgd", "adam")
# One epoch of NUM_STEPS, with warm-up for two thirds of it. The factor is for tests alone (tests/support/fault_injection.py).
SAME_TRAINING = ("--scaling", "strong", "--batch-size", "8", "--epochs", "1", "--learning-rate-factor", "4", "--warmup-epochs", "0.66")


# Settings that a framework's code could ignore: all its backends build the model and its optimizer by the same functions.
DROPOUT, MOMENTUM = ("--dropout",), ("--momentum", "0.5")
OTHER_MOMENTUM = (*SAME_TRAINING, *MOMENTUM)
# The same in micro-batches of 2 samples, at two ranks of one sample.
MICRO_BATCHES = (*(("2" if word == "8" else word) for word in OTHER_MOMENTUM), "--accumulate", "4")
# Six steps of a small model, on random images.
RESNET_TRAINING = (
    "--scaling", "strong", "--batch-size", "8", "--epochs", "2", "--learning-rate", "0.01", "--learning-rate-factor", "4",
    "--warmup-epochs", "0.66",
)  # fmt: skip
# For that many steps of 8, and for three. The rest is dropped.
NUM_STEPS = 8
MANY_SAMPLES, FEW_SAMPLES = 8 * NUM_STEPS + 3, 28
# Divided unevenly over the ranks, in batches of another size than the two of the warm-up.
NUM_TEST_SAMPLES = 21
# What a run trains instead of the workload's own model, which is no fault of a backend's.
OTHER_MODELS = ("tied", "small_resnet")


class Run(NamedTuple):
    """One of the runs that the processes of a backend do in turn; `fault` is a function of tests/support/faults.py."""

    workload: str
    optimizer: str
    precision: str = "fp64"
    learning_rate: str | None = None
    short: bool = False
    fault: str = "none"
    training: tuple = SAME_TRAINING
    small: bool = True
    """Whether it trains a small model of the workload's kind. Numbers that are not of rounding alone are those of the workload's own."""

    def arguments(self, data, name="single"):
        """The arguments of a backend, or of a variant; `data` is of the fixture of that name."""
        workload = (*data[self.short].get(self.workload, ("--workload", self.workload)), "--optimizer", self.optimizer)
        learning_rate = ("--learning-rate", self.learning_rate) if self.learning_rate else ()
        small = ("--small",) if self.small else ()
        variant = as_arguments(settings_of(name, Settings()))
        return (*self.training, *small, *workload, "--precision", self.precision, *learning_rate, *variant)

    @property
    def plain(self):
        """The run of `single` that trains as this run of another backend should."""
        is_same = self.training[: len(SAME_TRAINING)] == SAME_TRAINING
        training = OTHER_MOMENTUM if self.training == MICRO_BATCHES else SAME_TRAINING if is_same else self.training
        fault = self.fault if self.fault in OTHER_MODELS else "none"
        return self._replace(fault=fault, training=training)


class Comparison(NamedTuple):
    """A run of a backend and a run of reference, whose losses differ by `above` to `below`, relative, where they differ most."""

    run: Run
    variant: str = ""
    ranks: int = 2
    below: float = 1e-10
    above: float = 0.0
    steps: slice = slice(None)
    reference: tuple | None = None
    """The name, the ranks and the run; default: the plain run."""


CNN, CNN_ADAM, DECODER, DECODER_ADAM = (Run(workload, optimizer) for workload in WORKLOADS for optimizer in OPTIMIZERS)
# Both workloads and both optimizers: backends are not made for a pair of them.
FLOAT64 = [CNN, DECODER_ADAM]
# Also at 4 ranks. Not Adam, whose steps do not depend on the scale of the gradients.
SHORT_CNN, SHORT_DECODER, SHORT_DECODER_ADAM = (run._replace(short=True) for run in (CNN, DECODER, DECODER_ADAM))
# At the CNN's default learning rate training amplifies the rounding of DeepSpeed's master parameters to float32; at this one not.
SMALL_LEARNING_RATE = SHORT_CNN._replace(learning_rate="1e-5")
# The last step of its warm-up shows what a rank holds.
FLOAT32 = SHORT_CNN._replace(precision="fp32", small=False)
TIED = SHORT_DECODER._replace(fault="tied")
ACCUMULATED, ACCUMULATED_DECODER = (run._replace(training=MICRO_BATCHES) for run in (SHORT_CNN, SHORT_DECODER))

# Mixed precision. At the CNN's default learning rate training amplifies the difference to float32, to 2e-2 in the second step.
MIXED_CNN = SHORT_CNN._replace(precision="bf16", learning_rate="4e-4", small=False)
MIXED_DECODER = SHORT_DECODER_ADAM._replace(precision="bf16")
MIXED = [MIXED_CNN, MIXED_DECODER]
# Of the losses of the first two steps, relative, on PyTorch, and between frameworks as in the report. Measured: frameworks/README.md,
# "Precision".
MIXED_BOUND, MIXED_BOUND_OF_FRAMEWORKS = 2e-3, same.tolerance_of("bf16", environment.instruction_sets())

# Every epoch is one step, which each worker of a server takes from the same parameters. Without momentum the sum of their updates is the
# update with the average gradient.
ONE_STEP = Run("cnn", "sgd", short=True, training=(
    "--scaling", "strong", "--batch-size", "20", "--epochs", "6", "--no-stop-at-target", "--momentum", "0", "--learning-rate-factor", "4",
    "--warmup-epochs", "3.5",
))  # fmt: skip
NUM_ASYNCHRONOUS_EPOCHS = 12
ASYNCHRONOUS = Run("cnn", "sgd", training=(
    "--scaling", "strong", "--batch-size", "8", "--epochs", str(NUM_ASYNCHRONOUS_EPOCHS), "--no-stop-at-target",
))  # fmt: skip
# Its optimizer takes over a state at its end. Adam has one more number of each parameter than SGD, and the count of steps.
RESTORED = Run("cnn", "adam", "fp32", short=True, fault="restored")
# Statistics of the batch.
OF_BATCHES = Run("resnet50", "sgd", short=True, fault="small_resnet", training=RESNET_TRAINING)

EVER = float("inf")

# The comparisons of a backend with the plain run, in which training does not amplify rounding


def to_rounding(run, variant="", ranks=2, below=1e-6, **fields):
    return Comparison(run, variant, ranks, below, **fields)


def in_float32(run, variant=""):
    """Of the first two steps."""
    return to_rounding(run, variant, steps=slice(0, 2))


def in_mixed_precision(run, ranks=2, below=MIXED_BOUND):
    """Of the first two steps: with the plain run in mixed precision, and with that in float32, from which more than rounding differs."""
    yield Comparison(run, ranks=ranks, below=below, steps=slice(0, 2))
    full = ("single", 1, run._replace(precision="fp32"))
    yield Comparison(run, ranks=ranks, below=1e-2, above=1e-5, steps=slice(0, 2), reference=full)


def changed(*changes):
    """With each change one process has other losses than with the defaults."""
    for change in changes:
        with_change = SHORT_CNN._replace(training=(*SAME_TRAINING, *change))
        yield Comparison(with_change, ranks=1, below=EVER, above=1e-4, reference=(BASELINE, 1, SHORT_CNN))


# Those of single backends

WHOLE_DECODER = DECODER._replace(small=False)
DATA_PARALLEL = [Comparison(CNN._replace(fault="without_gpus", training=(*SAME_TRAINING, "--device", "cpu")), ranks=1, below=1e-300)]

# Local SGD that averages the parameters after every step: with momentum an update is linear in the gradients, so the average of the ranks'
# updates is the update with the average gradient.
WEIGHT_AVERAGING = [
    Comparison(CNN, "1"),
    Comparison(ACCUMULATED, "1"),
    Comparison(WHOLE_DECODER, below=0.2, above=1e-3, steps=slice(0, NUM_STEPS - 1)),
]
# Post-local SGD that is local from the first step, after LATER_STEPS, and never. The average after the first local step is of equal
# parameters: the second local step is the first whose loss differs.
LATER_STEPS = 3
LOCAL, _LATER = ((*SAME_TRAINING, "--local-after", number) for number in ("0", str(LATER_STEPS)))
POST_LOCAL_SGD = [
    Comparison(CNN._replace(training=LOCAL), "1"),
    Comparison(WHOLE_DECODER._replace(training=_LATER), steps=slice(0, LATER_STEPS + 2)),
    Comparison(WHOLE_DECODER._replace(training=_LATER), below=0.2, above=1e-4, steps=slice(LATER_STEPS + 2, NUM_STEPS)),
    Comparison(DECODER_ADAM),
]
# Of one worker, and of two.
SERVER = [*map(Comparison, FLOAT64), Comparison(ONE_STEP, ranks=3)]

# Its master parameters are float32. At its default learning rate the CNN is compared only with training that rounds as ZeRO does: plain in
# stages 1 to 3, of which a sum in another order may round a master parameter the other way, and DDP's in stage 0, which has no float64.
_CNN_IN_FLOAT32, _ROUNDING = CNN._replace(precision="fp32"), ("ddp", 2, CNN._replace(fault="float32_masters"))
ZERO = [
    *(to_rounding(CNN._replace(fault="not_fused"), variant, below=1e-7, reference=_ROUNDING) for variant in ("", "2", "3")),
    to_rounding(DECODER_ADAM),
    to_rounding(SMALL_LEARNING_RATE, ranks=4),
    to_rounding(_CNN_IN_FLOAT32, "0", reference=("ddp", 2, _CNN_IN_FLOAT32)),
    *(to_rounding(ACCUMULATED_DECODER, variant) for variant in ("", "2", "3")),
    *(in_float32(FLOAT32, variant) for variant in ("", "3")),
    *in_mixed_precision(MIXED_DECODER),
    to_rounding(TIED, "3"),
    to_rounding(SHORT_DECODER._replace(fault="other_float16"), "3"),
]

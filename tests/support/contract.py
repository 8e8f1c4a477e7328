"""What every backend must show: one row a backend, with what does not follow from its declaration (common/backends.py).

The runs of agreement, memory and step breakdown, and the faults that must show in them, are those of the rows and nothing else.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from common.backends import file_of
from common.config import Settings
from common.cost import parallelism
from common.declarations import BASELINE, declared
from common.model.description import parameters_of
from tests.support import agreement_runs as runs
from tests.support import faults, small_models
from tests.support.agreement_runs import CNN, DECODER, WHOLE_DECODER, Comparison, Run
from tests.support.backends import DISTRIBUTED, EXACT, VARIANTS, trains
from tests.support.faults import Faults
from tests.support.step_breakdown_run import NUM_STEPS

EMPTY = MappingProxyType({})


class Breakdown(NamedTuple):
    """A run whose step breakdown is measured at two ranks; `shares`: {collective: bytes of a step over those of the gradients}."""

    workload: str
    arguments: tuple
    shares: Mapping
    precision: str = "fp32"

    @property
    def run(self) -> Run:
        """The run after which tests/support/step_breakdown_run.py measures."""
        training = ("--step-breakdown", "--epochs", "1", "--batch-size", str(SAMPLES), *map(str, self.arguments))
        return Run(self.workload, OPTIMIZER_OF[self.workload], self.precision, short=True, fault="step_breakdown", training=training)


class Row(NamedTuple):
    """What the tests must know of a backend. A variant is named by its value, "" is the default."""

    faults: Faults | None = None
    """How it is broken; None where one process trains."""
    faulty: tuple[str, Run] = ("", CNN)
    """The variant and the run that a fault must change."""
    in_sync_under_faults: bool = False
    """Whether ranks gather one set of parameters, from shards or a server, so that they do not differ where gradients are not reduced."""
    one_model: bool | tuple = False
    """Whether the ranks hold one model's shards alone, so that they do not differ without communication either; or the variants that do."""
    comparisons: Sequence = ()
    """The Comparisons that only it is held to."""
    reduced: Mapping = EMPTY
    """{variant that reduces gradients in another way: bounds of the loss difference during the warm-up}; the CNN would amplify it."""
    held: Mapping = EMPTY
    """{variant: {point of a step: what rank 0 holds of parameters, gradients and optimizer state, over all parameters}}."""
    off_theory: Mapping = EMPTY
    """{variant: what the rank with most holds, over what common/cost/sharing.py expects}, where that differs."""
    breakdowns: tuple = ()
    """The Breakdowns."""


PARAMETERS = {"cnn": parameters_of(small_models.CNN), "transformer": parameters_of(small_models.DECODER)}
# Of both workloads, and of a layer of the CNN, in float32.
NUM_PARAMETERS = {
    workload: sum(math.prod(parameter.shape) for parameter in parameters.values()) for workload, parameters in PARAMETERS.items()
}
GRADIENT_BYTES = {workload: 4 * number for workload, number in NUM_PARAMETERS.items()}
OPTIMIZER_OF = {"cnn": "sgd", "transformer": "adam"}
# Of a rank in a step of a Breakdown.
SAMPLES = 4
# With as many samples in a step. It exchanges the bytes of a step of one batch.
ACCUMULATE = ("--accumulate", 4, "--batch-size", SAMPLES // 4)
ALL_REDUCED = Breakdown("cnn", ACCUMULATE, {"all_reduce": 1})

# Rank 0 updates the first dense layer's weight, and rank 1 the rest.
LARGEST = 1_179_648 / 1_199_882
# The first two of four layers are rank 0's stage.
FIRST_STAGE = (320 + 18_496) / 1_199_882
REPLICATED = {"after_forward": (1, 0, 1), "after_backward": (1, 1, 1), "after_step": (1, 1, 1)}
# Of momentum and of master parameters half each.
HALF_OF_STATE = {"after_step": (1, 0.5, 1)}


def of_numbers(workload, **num_numbers):
    """The Breakdown of a run that sends so many numbers in float32, by collective."""
    return Breakdown(workload, (), {collective: 4 * number / GRADIENT_BYTES[workload] for collective, number in num_numbers.items()})


# Numbers of a sample that conv2 of the CNN gives, after the pooling, to the next layer.
CONV2 = 12 * 12 * 8
# The parameters of conv1 and conv2, with their biases.
TWO_CONVOLUTIONS = 4 * (9 + 1) + 8 * (4 * 9 + 1)
# Of the Transformer: the numbers of a rank's samples between its blocks, each of a context of 64 with a width of 32.
ACTIVATIONS = SAMPLES * 64 * 32
BY_HAND = Faults(faults.by_hand_without_all_reduce, faults.by_hand_summed)
OF_ONE_PROCESS = [
    *(Comparison(run, ranks=1) for run in (*runs.FLOAT64, runs.ACCUMULATED)),
    *runs.changed(runs.DROPOUT),
]
# What computes a model in its own way; the others exchange float32 as ever.
MIXED = tuple(runs.in_mixed_precision(runs.MIXED_DECODER))


def in_tensorflow(run):
    return runs.in_mixed_precision(run, ranks=1, below=runs.MIXED_BOUND_OF_FRAMEWORKS)


ROW_OF_BACKEND = {
    "single": Row(
        comparisons=[
            Comparison(runs.ACCUMULATED, ranks=1),
            *(comparison for run in runs.MIXED for comparison in runs.in_mixed_precision(run, ranks=1)),
            *runs.changed(runs.DROPOUT, runs.MOMENTUM),
        ]
    ),
    "single_tf": Row(comparisons=[*OF_ONE_PROCESS, *in_tensorflow(runs.MIXED_CNN)]),
    "single_keras": Row(comparisons=[*OF_ONE_PROCESS, *in_tensorflow(runs.MIXED_DECODER), Comparison(runs.OF_BATCHES, ranks=1)]),
    "data_parallel": Row(comparisons=runs.DATA_PARALLEL),
    "ddp": Row(
        Faults(faults.ddp_without_all_reduce, faults.multiplied_gradients),
        comparisons=MIXED,
        reduced={"fp16": (1e-7, 1e-4), "bf16": (1e-7, 1e-3)},
        held={"": REPLICATED},
        breakdowns=(
            Breakdown("cnn", ("--transport", "mpi"), {"all_reduce": 1}),
            # Float16 whatever the type of the gradients.
            Breakdown("transformer", ("--reduction", "fp16"), {"all_reduce": 1 / 2}, "fp64"),
            ALL_REDUCED,
        ),
    ),
    "deepspeed_zero": Row(
        Faults(faults.deepspeed_without_all_reduce, faults.deepspeed_summed),
        # Not the CNN: at its default learning rate even a correct run differs.
        faulty=("", DECODER),
        in_sync_under_faults=True,
        one_model=("3",),
        comparisons=runs.ZERO,
        # In stage 3, gradients in its buffer, and again as those of the master parameters.
        held={"": HALF_OF_STATE, "3": {"after_step": (0.5, 1, 1)}},
        # Stage 1 keeps its shard of the gradients only, and stage 3 has them twice.
        off_theory={"": 0.833, "3": 1.25},
        breakdowns=(
            Breakdown("cnn", ("--zero-stage", 0, *ACCUMULATE), {"all_reduce": 1}),
            Breakdown("cnn", ("--zero-stage", 1, *ACCUMULATE), {"all_reduce": 1, "all_gather": 1 / 2}),
            # Stages 2 and 3 reduce gradients at each micro-batch, and what gathers parameters does so for each.
            Breakdown("cnn", ("--zero-stage", 2, *ACCUMULATE), {"all_reduce": 4, "all_gather": 1 / 2}),
            Breakdown("cnn", ("--zero-stage", 3, *ACCUMULATE), {"reduce_scatter": 4, "all_gather": 4 / 2, "all_reduce": 0}),
        ),
    ),
    "fsdp": Row(
        Faults(faults.fsdp_without_all_reduce, faults.fsdp_summed),
        in_sync_under_faults=True,
        one_model=True,
        comparisons=[*MIXED, Comparison(runs.TIED)],
        reduced={"bf16": (1e-7, 1e-3)},
        held={
            "": {"after_forward": (0.5, 0, 0.5), "after_backward": (0.5, 0.5, 0.5), "after_step": (0.5, 0.5, 0.5)},
            # The whole parameters beside the shards.
            "keep": {"after_forward": (1.5, 0, 0.5), "after_backward": (0.5, 0.5, 0.5)},
        },
        breakdowns=(
            Breakdown("cnn", ("--reduction", "bf16"), {"all_gather": 1, "reduce_scatter": 1 / 2}),
            # What gathers parameters does so for each micro-batch.
            Breakdown("cnn", ACCUMULATE, {"all_gather": 4, "reduce_scatter": 1}),
            Breakdown("cnn", ("--sharding", "keep", *ACCUMULATE), {"all_gather": 4 / 2, "reduce_scatter": 1}),
        ),
    ),
    "gradient_averaging": Row(
        BY_HAND,
        breakdowns=(Breakdown("cnn", ("--transport", "mpi", *ACCUMULATE), {"all_reduce": 1}),),
    ),
    "horovod_keras": Row(
        Faults(faults.horovod_without("DistributedOptimizer"), faults.horovod_summed("DistributedOptimizer")),
        breakdowns=(ALL_REDUCED,),
    ),
    "horovod_tf": Row(
        Faults(faults.horovod_without("DistributedGradientTape"), faults.horovod_summed("DistributedGradientTape")),
        # TensorFlow frees the gradients within the step.
        held={"": REPLICATED | {"after_step": (1, 0, 1)}},
        breakdowns=(ALL_REDUCED,),
    ),
    "horovod_torch": Row(
        Faults(faults.horovod_without("DistributedOptimizer"), faults.horovod_summed("DistributedOptimizer")),
        reduced={"fp16": (1e-7, 1e-4)},
        breakdowns=(
            Breakdown("cnn", ("--reduction", "fp16"), {"all_reduce": 1 / 2}),
            ALL_REDUCED,
        ),
    ),
    "parameter_server": Row(
        Faults(faults.server_without_updates, faults.server_summed),
        faulty=("", runs.ONE_STEP),
        in_sync_under_faults=True,
        comparisons=runs.SERVER,
        held={"": {"after_forward": (1, 0, 0), "after_backward": (1, 1, 0), "after_step": (1, 1, 0)}},
        breakdowns=(Breakdown("cnn", (), {"send": 1, "receive": 1}),),
    ),
    "pipeline": Row(
        Faults(faults.pipeline_without_gradients, faults.pipeline_scaled),
        in_sync_under_faults=True,
        one_model=True,
        comparisons=MIXED,
        held={"": {"after_forward": (FIRST_STAGE, FIRST_STAGE, FIRST_STAGE), "after_step": (FIRST_STAGE, FIRST_STAGE, FIRST_STAGE)}},
        # Of the output of conv2, and the loss.
        breakdowns=(of_numbers("cnn", send=SAMPLES * CONV2, broadcast=1),),
    ),
    "pipeline_ddp": Row(
        BY_HAND,
        one_model=True,
        # Of the gradients of its stage, to which the other rank adds none.
        breakdowns=(of_numbers("cnn", send=SAMPLES * CONV2, broadcast=1, all_reduce=TWO_CONVOLUTIONS),),
    ),
    "post_local_sgd": Row(
        Faults(faults.post_local_sgd_without, faults.post_local_sgd_summed),
        faulty=("1", CNN._replace(training=runs.LOCAL)),
        comparisons=runs.POST_LOCAL_SGD,
        # After each of NUM_STEPS, and at their end.
        breakdowns=(Breakdown("cnn", ("--local-after", 0, "--averaging-period", 1), {"all_reduce": (NUM_STEPS + 1) / NUM_STEPS}),),
    ),
    "tensor_parallel": Row(
        Faults(faults.tensor_parallel_without, faults.multiplied_gradients),
        comparisons=MIXED,
        # Activations at each of two layers' two products and at the embedding, forward; the same backward at five norms. Of logits, 256
        # wide, each rank has one half, which is four times the width. The gradients of norms are summed.
        breakdowns=(of_numbers("transformer", reduce_scatter=10 * ACTIVATIONS, all_gather=9 * ACTIVATIONS, all_reduce=5 * 32),),
    ),
    "tf_mirrored": Row(
        Faults(faults.mirrored_without_all_reduce, faults.mirrored_summed),
        breakdowns=(ALL_REDUCED,),
    ),
    "weight_averaging": Row(
        Faults(faults.without_average_of_weights, faults.by_hand_summed),
        # Every other period differs even in a correct run.
        faulty=("1", CNN),
        comparisons=runs.WEIGHT_AVERAGING,
    ),
    "zero_redundancy": Row(
        Faults(faults.ddp_without_all_reduce, faults.reduce_buckets),
        in_sync_under_faults=True,
        held={"": {"after_step": (1, 1, LARGEST)}},
        # Whole parameters are dealt to ranks.
        off_theory={"": 1.193},
        breakdowns=(Breakdown("cnn", ACCUMULATE, {"all_reduce": 1, "broadcast": 1}),),
    ),
}
# A backend can be taken away before its row, and come before it: tests/frameworks/test_contract.py names one without.
ROWS = {name: ROW_OF_BACKEND.get(name, Row()) for name in declared()}


def named(field):
    """{name of a backend or variant: value} of a field of the rows that has a value for each variant."""
    return {"@".join(filter(None, (name, variant))): value for name, row in ROWS.items() for variant, value in getattr(row, field).items()}


HELD = named("held")
REDUCED = named("reduced")

FAULTS = ("summed_gradients", "no_all_reduce")


def trained_by(backend, compared):
    """The runs, of the Transformer where a backend does not train the CNN."""
    return compared if trains(backend, "cnn") else list(dict.fromkeys(run._replace(workload="transformer") for run in compared))


def with_variant(backend, variant):
    """The name of a backend's variant; "" is the default."""
    return f"{backend}@{variant}" if variant else backend


def comparisons():
    """(name of a backend or variant, Comparison) of all that is compared."""
    for backend, row in ROWS.items():
        compared = [*exact(backend), *row.comparisons]
        for variant, (low, high) in row.reduced.items():
            # While the learning rate is warmed up.
            compared.append(Comparison(WHOLE_DECODER, variant, 2, high, low, slice(0, 2 * runs.NUM_STEPS // 3)))
        for comparison in compared:
            reference = comparison.reference or (BASELINE, 1, comparison.run.plain)
            yield with_variant(backend, comparison.variant), comparison._replace(reference=reference)


def exact(backend):
    """The Comparisons of every distributed backend that is exact in float64."""
    if backend not in EXACT:
        return
    on_pytorch = declared()[backend].framework == "PyTorch"
    # A pipeline has micro-batches of its own, and those on PyTorch train the CNN without micro-batches at four ranks.
    of_cnn = [runs.CNN] if declared()[backend].pipelined else [runs.ACCUMULATED] if on_pytorch else [runs.CNN, runs.ACCUMULATED]
    yield from map(Comparison, trained_by(backend, [*of_cnn, runs.DECODER_ADAM]))
    (short,) = trained_by(backend, [runs.SHORT_CNN])
    yield Comparison(short, ranks=4)
    if "" in ROWS[backend].held:
        yield runs.in_float32(runs.FLOAT32)
    # Horovod's ranks meet over Gloo for TensorFlow as they do for PyTorch.
    if on_pytorch:
        yield from (Comparison(short, name.partition("@")[2]) for name in VARIANTS if file_of(name) == backend)


COMPARISONS = tuple(comparisons())


def ranks_of_faults(backend):
    """The number of ranks at which a backend is broken: one at which it has two shards, if any."""
    settings = Settings(workload="transformer")
    sizes = [ranks for ranks in (2, 3, 4) if not parallelism.problem(backend, settings, ranks)]
    return next((ranks for ranks in sizes if parallelism.degree(backend, settings, ranks) == 2), 2)


def faulty(backend, fault):
    """(name, run) of a backend with a fault."""
    variant, run = ROWS[backend].faulty
    (run,) = trained_by(backend, [run])
    return with_variant(backend, variant), run._replace(fault=fault, short=True)


# The loop cuts the shards of all backends.
INJECTED = [*((name, fault) for name in DISTRIBUTED for fault in FAULTS), ("ddp", "same_shard")]

"""What instruction sets have to do with a framework's part, by kind of layer: oneDNN's and MKL's crossed, as tables in Markdown.

python -m tests.bench.instruction_sets --repeats 6

`single` and `single_tf` train the CNN and the Transformer with the instruction sets that oneDNN takes and limited to AVX2, each with both
`--mkl-kernels`. The seconds are those of the compute of a step, and of its layers, from the step breakdown. TensorFlow has no MKL: what its
kernels change there is the noise of the measurement.
"""

import itertools
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

from common.data import sharding
from launch.report import entries
from launch.report.questions import layers
from launch.report.questions.step import compute_seconds
from launch.report.statistics import simultaneous_ratio
from tests.bench import shared
from tests.support.running import copied

BACKENDS = ("single", "single_tf")
# By name the variables of a matrix, and its settings.
ONEDNN = {"default": {}, "AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}
MKL = {"default": (), "fast": ("--mkl-kernels", "fast")}
CONDITIONS = list(itertools.product(ONEDNN, MKL))
EFFECT_COLUMNS = ("workload", "backend", "effect on the compute of a step", "repeats", "ratio", "95 % interval", "verdict")
LAYER_COLUMNS = ("workload", "backend", "layers (ms)", *(f"oneDNN {onednn}, MKL {mkl}" for onednn, mkl in CONDITIONS))


@dataclass(frozen=True)
class Arguments:
    """How much is run."""

    repeats: int = 3
    """Repeats of each of the four conditions, of about 45 s each on a quiet machine."""
    workloads: str = "cnn,transformer"
    """Workloads, separated by commas."""
    steps: int = 20
    """Steps that a run trains before its step breakdown."""


def main(arguments):
    steps = {sharding.STEPS_VARIABLE: str(arguments.steps)}
    settings = ("--workloads", arguments.workloads, "--epochs", 1, "--backends", ",".join(BACKENDS))
    with tempfile.TemporaryDirectory() as name:
        checkout = copied(Path(name))

        def measure(condition, repeat):
            onednn, mkl = condition
            folder = Path(name, f"{onednn}-{mkl}")
            return shared.matrix(checkout, folder, 1, *settings, "--seed", 1 + repeat, *MKL[mkl], variables=ONEDNN[onednn] | steps)

        records_of = shared.in_blocks(measure, CONDITIONS, arguments.repeats)
    print("\n".join([shared.head(EFFECT_COLUMNS), *map(shared.row, effects(records_of))]))
    print("\n".join(["", shared.head(LAYER_COLUMNS), *map(shared.row, layer_rows(records_of))]))


def effects(records_of):
    """The rows of the effects: each factor on each backend over the levels of the other one, both together, and the framework's part."""
    seconds = {
        (record.workload, record.backend, condition, record.seed): compute_seconds(record)
        for condition, records in records_of.items()
        for record in records
        if record.step_breakdown
    }
    workloads, seeds = (sorted({key[place] for key in seconds}) for place in (0, 3))

    def products(workload, backend, conditions, power):
        """The product over conditions, to a power, of each seed."""
        return [math.prod(seconds[workload, backend, condition, seed] for condition in conditions) ** power for seed in seeds]

    for workload in workloads:
        for backend in BACKENDS:
            for effect, power, *sides in contrasts():
                yield effect_row(workload, backend, effect, *(products(workload, backend, conditions, power) for conditions in sides))
        for condition in CONDITIONS:
            name = f"framework, with oneDNN {condition[0]} and MKL {condition[1]}"
            yield effect_row(workload, " to ".join(BACKENDS), name, *(products(workload, backend, [condition], 1) for backend in BACKENDS))


def contrasts():
    """Returns [(effect, the power of its products, the conditions in its numerator, those in its denominator), …]."""
    (onednn, limited), (mkl, fast) = ONEDNN, MKL
    return [
        ("oneDNN limited to AVX2", 0.5, [(limited, mkl), (limited, fast)], [(onednn, mkl), (onednn, fast)]),
        ("MKL's fast kernels", 0.5, [(onednn, fast), (limited, fast)], [(onednn, mkl), (limited, mkl)]),
        ("both, beyond the product of the two", 1, [(onednn, mkl), (limited, fast)], [(onednn, fast), (limited, mkl)]),
    ]


def effect_row(workload, backend, effect, above, below):
    ratio = simultaneous_ratio(above, below, paired=True, num_compared=2)
    interval = "-" if ratio.low is None else f"{ratio.low:.3f} to {ratio.high:.3f}"
    return workload, backend, effect, len(above), f"{ratio.value:.3f}", interval, shared.verdict(ratio)


def layer_rows(records_of):
    """The rows of the layers: milliseconds of a step in each kind of layer, forward and backward, by condition."""
    tables = {}
    for condition, records in records_of.items():
        for comparison in entries.comparisons(records):
            for row in layers.rows_of(comparison.entries):
                for backend, times in row.times_of.items():
                    tables.setdefault((comparison.workload, backend, row.name), {})[condition] = times.total
    for (workload, backend, name), milliseconds in sorted(tables.items(), key=lambda item: item[0][:2]):
        yield workload, backend, name, *(f"{milliseconds.get(condition, math.nan):.3f}" for condition in CONDITIONS)


if __name__ == "__main__":
    shared.main(main, Arguments, __file__, __doc__)

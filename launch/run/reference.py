"""The matrix of the reference, with which the committed sets in results/reference were made and which runs on any machine."""

import dataclasses
from collections.abc import Sequence

from common.command_line import flag
from common.errors import UserError
from common.model import workload_table
from common.record.definition import Record
from launch.report import comparable
from launch.report.export import terminal
from launch.report.questions import reference as committed_sets
from launch.report.words import listed
from launch.run.matrix_options import Matrix

# Every default backend, TensorFlow and Keras without a library, and both transports where a library has them.
BACKENDS = (
    "single", "single_tf", "single_keras", "ddp", "ddp@mpi", "deepspeed_zero",
    "horovod_torch", "horovod_torch@gloo", "horovod_tf", "horovod_keras",
)  # fmt: skip
AXES = {"sizes": (1, 2), "backends": ",".join(BACKENDS), "workloads": ",".join(workload_table.BY_DEFAULT), "repeats": 6}
# Targets were chosen on lower seeds, and verified on some of them (results/reference/experiments/targets.txt).
FIRST_SEED = 301
# No committed set ran on a GPU.
DEVICE = "cpu"
# There are committed sets with each value of it.
FREE = "mkl_kernels"
# Options that have their defaults in the matrix of the reference, as they are given.
FIXED = {
    "sizes": "the sizes", "backends": "--backends", "workloads": "--workloads", "repeats": "--repeats",
    "side_by_side": "--no-side-by-side", "print_jobs": "--print-jobs", "one_job": "--one-job", "queue": "--queue",
}  # fmt: skip


def applied(matrix: Matrix) -> Matrix:
    """Returns the matrix with the axes and settings of the reference. Raises UserError for an option that contradicts them."""
    defaults = {field.name: field.default for field in dataclasses.fields(matrix)}
    given = [option for name, option in FIXED.items() if getattr(matrix, name) != defaults[name]]
    default_settings = type(matrix.run)()
    names = [field.name for field in comparable.COMPARED if field.name != FREE]
    given += [flag(name) for name in names if getattr(matrix.run, name) != getattr(default_settings, name)]
    if matrix.run.device not in ("auto", DEVICE):
        given.append("--device")
    if given:
        raise UserError(f"--reference has axes and settings of its own; leave out {listed(given)}")
    return dataclasses.replace(matrix, **AXES, run=dataclasses.replace(matrix.run, device=DEVICE))


def show_judgement(records: Sequence[Record]) -> None:
    """Prints how the ratios of records agree with those of the committed sets."""
    section = committed_sets.section(records)
    terminal.show_result(section.tables, [section.question, *section.sentences])

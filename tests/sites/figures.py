"""What an acceptance test asserts of the records of one workload and size: what is wrong with them, and the figures of each backend.

python -m tests.sites.figures RESULTS --backends ddp,horovod_torch --reference EARLIER_RESULTS --relative-to ddp

It prints JSON, for tests whose Python need not have the packages that Tandem needs.
"""

import json
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Annotated

import tyro

from common import command_line
from common.errors import UserError
from common.record import reading
from launch.report import comparable, entries, epochs, measures

# {figure of a backend: (unit, value for its entry)}. A value is the trimmed mean of the repeats.
FIGURES = {
    "seconds_per_epoch": ("s", measures.epoch_seconds),
    "time_to_solution": ("s", measures.time_of),
    "samples_per_second": ("samples/s", lambda entry: entry.trimmed_mean(attrgetter("samples_per_second"))),
}


@dataclass(frozen=True)
class Arguments:
    """Which records, and with which earlier ones they are compared."""

    results: Annotated[Path, tyro.conf.Positional]
    """Folder of the records of one workload and size."""
    backends: str = ""
    """Backends, separated by commas, that must have records."""
    reference: Path | None = None
    """Folder of earlier records of the same matrix: their seconds per epoch are the references."""
    relative_to: str | None = None
    """Backend: the ratio of each other one's seconds per epoch to its own is a figure too, and the references are ratios."""


def run(arguments):
    measured = reading.collect([arguments.results])[0]
    earlier = reading.collect([arguments.reference])[0] if arguments.reference else []
    lines = problems(measured, command_line.names_in(arguments.backends))
    print(json.dumps({"problems": lines, "figures": {} if lines else figures(measured, earlier, arguments.relative_to)}))


def problems(measured, backends):
    """A line for each run that did not complete with equal parameters on all ranks, and for each of the backends that has no record."""
    lines = [
        f"{record.backend}, repeat {record.repeat}: {record.error or record.status}, in_sync {record.in_sync}"
        for record in measured
        if record.status != "ok" or record.in_sync is not True
    ]
    return lines + [f"{backend} has no record" for backend in backends if backend not in {record.backend for record in measured}]


def figures(measured, earlier=(), relative_to=None):
    """Returns {name: {value, unit, reference}} of the figures of all backends, such as ddp_seconds_per_epoch; `reference` may be None.

    Raises UserError where the records are not of one workload and size, where earlier ones are not comparable with them, and where a
    figure that is compared is missing on one side.
    """
    comparable.check([*measured, *earlier])
    comparison, num_ranks = of_one_size(measured)
    values = values_of(comparison.of_size(num_ranks), relative_to)
    reference = next((compared for compared in entries.comparisons(earlier) if compared.name == comparison.name), None)
    references = values_of(reference.of_size(num_ranks), relative_to) if reference else {}
    compared = f"_ratio_to_{relative_to}" if relative_to else "_seconds_per_epoch"
    for side, names in {"reference": values.keys() - references.keys(), "results": references.keys() - values.keys()}.items():
        missing = ", ".join(sorted(name for name in names if name.endswith(compared)))
        if earlier and missing:
            raise UserError(f"the {side} of {comparison.name} at {num_ranks} ranks have no {missing}; run the same matrix for both")
    if not any(name.endswith(compared) for name in values):
        raise UserError(f"no backend has a figure ...{compared}; nothing would be compared")
    return {
        name: {"value": value, "unit": unit, "reference": references[name][0] if name.endswith(compared) and earlier else None}
        for name, (value, unit) in values.items()
    }


def of_one_size(measured):
    """Returns (Comparison, number of ranks) of the records."""
    sizes = [(comparison, num_ranks) for comparison in entries.comparisons(measured) for num_ranks in comparison.sizes]
    if len(sizes) != 1:
        raise UserError(f"there are records of {len(sizes)} workloads and sizes; a test is of one")
    return sizes[0]


def values_of(at_size, relative_to):
    """Returns {name: (value, unit)} of the figures that the entries of a size have."""
    values = {f"{entry.backend}_{name}": (value_of(entry), unit) for entry in at_size for name, (unit, value_of) in FIGURES.items()}
    for below in (entry for entry in at_size if entry.backend == relative_to):
        for above in (entry for entry in at_size if entry is not below):
            values[f"{above.backend}_ratio_to_{relative_to}"] = (ratio(above, below, at_size), "ratio")
    return {name: (value, unit) for name, (value, unit) in values.items() if value is not None}


def ratio(above, below, compared):
    """The ratio of the seconds per epoch of two entries, of those `compared`; None where there is none.

    Of runs side by side it is the median ratio of the turns that followed each other, which bursts of other load do not change.
    """
    turns_below = {entries.key_of(record): epochs.seconds_by_turn(record) for record in below.from_start}
    turns = [
        seconds / seconds_below
        for record in above.from_start
        for seconds, seconds_below in zip(epochs.seconds_by_turn(record), turns_below.get(entries.key_of(record), ()), strict=False)
    ]
    if turns:
        return median(turns)
    of_epochs = measures.epoch_ratio(above, below, compared)
    return of_epochs and of_epochs.value


if __name__ == "__main__":
    command_line.main(run, Arguments, "python -m tests.sites.figures", __doc__.splitlines()[0])

"""What each backend costs and has to offer: time, state, traffic, exactness, what it changes in a program, startup, memory, energy."""

from collections.abc import Hashable, Sequence

from common.backends import file_of
from common.cost import volumes
from common.declarations import declared
from common.terminal import Table, filled
from common.words import ranks_of
from launch.report import environments, measures
from launch.report.entries import Comparison, Entry
from launch.report.environments import Limit
from launch.report.findings import MB, MIB, MILLI, NOT_MEASURED, Cells, Findings, in_unit
from launch.report.questions import step
from launch.report.ratio_text import span
from launch.report.runs import Runs

TERA = 10**12
FLOPS_PER_SECOND = "flops_per_second_per_rank"
QUESTION = "What does each backend cost?"
STARTUP = ("launch", "import", "init")
# The column of the table with the seconds of each stage, in order; those of STARTUP precede the timed part.
STAGES = {stage: f"{stage}_seconds" for stage in (*STARTUP, "load")} | {"train": "training_seconds", "evaluate": "evaluation_seconds"}
GPU_MEMORY = {
    "peak GPU memory allocated (MiB)": "peak_allocated_bytes",
    "reserved (MiB)": "peak_reserved_bytes",
    "used on the GPU (MiB)": "used_bytes",
}


def answer(runs: Runs) -> Findings:
    """Answers for all comparisons; numbers are trimmed means over the completed runs."""
    comparisons = runs.comparisons
    records = [record for comparison in comparisons for entry in comparison.entries for record in entry.ok]
    limit_of = environments.limits_of(records)
    tables = [table for comparison in comparisons for table in choice(comparison, limit_of)]
    sentences = [f"{slow.text}." for slow in environments.slow_products(records)]
    for comparison in comparisons:
        tables += filled(comparison.name, [_row(entry) for entry in comparison.entries if entry.ok])
        by_size = comparison.by_size() or comparison.by_size(oversubscribed=True)
        completed = [completed for entries in by_size.values() if (completed := [entry for entry in entries if entry.ok])]
        sentences += [_sentence(comparison.name, of_size) for of_size in completed[-1:]]
    if all(record.energy_joules is None for record in records):
        sentences.append(f"Energy: {NOT_MEASURED}.")
    return Findings(sentences, tables)


def _row(entry: Entry) -> Cells:
    return (
        entry.cells
        | {f"{stage} (s)": seconds for stage, seconds in stages(entry).items()}
        | {
            "peak memory per rank (MiB)": peak_mib(entry),
            "median step (ms)": in_unit(entry.trimmed_mean("median_step_seconds"), MILLI),
        }
        | {f"{kind.replace('_', ' ')} (MiB)": _state_mib(entry, kind) for kind in ("parameters", "gradients", "optimizer_state")}
        | {heading: _gpu_mib(entry, key) for heading, key in GPU_MEMORY.items()}
        | {"energy (J)": entry.trimmed_mean("energy_joules")}
    )


def _sentence(name: str, of_size: Sequence[Entry]) -> str:
    startup = {entry.backend: startup_seconds(entry) for entry in of_size}
    memory = {entry.backend: mib for entry in of_size if (mib := peak_mib(entry)) is not None}
    return (
        f"{name}, {ranks_of(of_size[0].num_ranks)}: startup ({', '.join(STARTUP)}) takes {span(startup, '{:.1f} s')}; "
        f"peak memory per rank is {span(memory, '{:.0f} MiB') if memory else NOT_MEASURED}."
    )


def stages(entry: Entry) -> dict[str, float | None]:
    """Returns the trimmed mean of the seconds of each of STAGES over the completed runs; None where unknown."""
    return {stage: entry.trimmed_mean(column) for stage, column in STAGES.items()}


def startup_seconds(entry: Entry) -> float:
    """Returns the seconds from launch to the timed part, without a stage that is not known."""
    seconds = stages(entry)
    return sum(seconds[stage] or 0.0 for stage in STARTUP)


def peak_mib(entry: Entry) -> float | None:
    """Returns the trimmed mean of the peak memory per rank over the completed runs; None where it is not known."""
    return in_unit(entry.trimmed_mean("peak_memory_bytes"), MIB)


def _state_mib(entry: Entry, kind: str) -> float | None:
    """Returns the MiB of parameters, gradients or optimizer state where a step and the ranks have most; None if not known."""
    points = [point for record in entry.ok if record.tensor_bytes_by_rank for point in vars(record.tensor_bytes_by_rank).values()]
    return max((size / MIB for point in points for size in getattr(point, kind)), default=None)


def _gpu_mib(entry: Entry, key: str) -> float | None:
    """Returns the MiB of GPU memory on the rank with most, the largest of the runs; None on CPUs, and where it is not known."""
    sizes_of_runs = entry.values(f"gpu_memory_by_rank_{key}").values()
    return max((size / MIB for sizes in sizes_of_runs for size in sizes if size is not None), default=None)


def choice(comparison: Comparison, limit_of: dict[Hashable, Limit]) -> list[Table]:
    """Returns the table of a comparison's entries with completed runs, by the limits of the machine (launch/report/environments.py)."""
    rows = [_choice_row(comparison, entry, limit_of) for entry in comparison.entries if entry.ok]
    return filled(f"{comparison.name}: which to choose", rows)


def _choice_row(comparison: Comparison, entry: Entry, limit_of: dict[Hashable, Limit]) -> Cells:
    def volume(column: str, unit: float) -> float | None:
        return in_unit(entry.trimmed_mean(column), unit)

    share = environments.share_of_limit(entry.trimmed_mean(FLOPS_PER_SECOND), entry.ok, limit_of)
    declaration = declared().get(file_of(entry.backend))
    return entry.cells | {
        "seconds per epoch": measures.epoch_seconds(entry),
        # Images have no tokens.
        "tokens/s": entry.trimmed_mean("tokens_per_second"),
        "TFLOP/s per rank": volume(FLOPS_PER_SECOND, TERA),
        "share of peak (%)": share and 100 * share,
        "state per rank (MiB)": volume("state_bytes", MIB),
        "expected (MiB)": volume("expected_state_bytes", MIB),
        "sent per step (MB)": volume("sent_per_step_bytes", MB),
        "by formula (MB)": volume("expected_sent_per_step_bytes", MB),
        "by collective (MB)": _collectives(entry),
        "exposed share of a step (%)": step.exposed_percent(comparison, entry),
        "training": "exact" if entry.exact else "approximate",
        "change to the program": declaration and declaration.change,
    }


def _collectives(entry: Entry) -> str | None:
    """Returns the collectives by which a rank sends, of the first run that has counted them."""
    return next((text for record in entry.ok if (text := volumes.describe_collectives(record))), None)

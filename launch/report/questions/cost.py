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
from launch.report.findings import MB, MIB, NOT_MEASURED, Cells, Findings, in_unit
from launch.report.questions import step
from launch.report.ratio_text import span
from launch.report.runs import Runs
from launch.report.statistics import present

TERA = 10**12
FLOPS_PER_SECOND = "flops_per_second_per_rank"
QUESTION = "What does each backend cost?"
STARTUP = ("launch", "import", "init")
# The column of the table with the seconds of each stage, in order; those of STARTUP precede the timed part.
STAGES = {stage: f"{stage}_seconds" for stage in (*STARTUP, "load")} | {"train": "training_seconds", "evaluate": "evaluation_seconds"}


def answer(runs: Runs) -> Findings:
    """Answers for all comparisons; numbers are trimmed means over the completed runs."""
    comparisons = runs.comparisons
    records = [record for comparison in comparisons for entry in comparison.entries for record in entry.ok]
    limit_of = environments.limits_of(records)
    tables: list[Table] = []
    for comparison in comparisons:
        rows = [_choice_row(comparison, entry, limit_of) for entry in comparison.entries if entry.ok]
        tables += filled(f"{comparison.name}: which to choose", rows)
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
    gpu_bytes = [size for sizes in entry.values("gpu_memory_by_rank_peak_allocated_bytes").values() for size in sizes]
    of_stages = {f"{stage} (s)": seconds for stage, seconds in stages(entry).items()}
    return (
        entry.cells
        | of_stages
        | {
            "peak memory per rank (MiB)": peak_mib(entry),
            # Of the rank with most.
            "peak GPU memory allocated (MiB)": in_unit(max(present(gpu_bytes), default=None), MIB),
            "energy (J)": entry.trimmed_mean("energy_joules"),
        }
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

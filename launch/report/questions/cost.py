"""What each backend costs and has to offer: time, start-up, memory, state, traffic, exactness, what it changes in a program, energy."""

from collections.abc import Sequence

from common.backends import file_of
from common.cost import volumes
from common.declarations import declared
from common.terminal import filled
from common.words import listed, ranks_of
from launch.report import environments
from launch.report.entries import Comparison, Entry
from launch.report.findings import MB, MIB, NOT_MEASURED, Cells, Findings, in_unit
from launch.report.questions import step
from launch.report.ratio_text import span
from launch.report.runs import Runs
from launch.report.statistics import present

GIGA, TERA = 10**9, 10**12
QUESTION = "What does each backend cost?"
# The stages that precede the timed part.
STARTUP = ("launch", "import", "init")


def answer(runs: Runs) -> Findings:
    """Answers for all comparisons; numbers are trimmed means over the completed runs."""
    records = [record for entry in runs.entries for record in entry.ok]
    limits = environments.limits_of(records).values()
    products = list(dict.fromkeys(f"{limit.flops_per_second / GIGA:.0f} GFLOP/s ({limit.library})" for limit in limits))
    sentences, tables = [f"The fastest matrix product of a rank reaches {listed(products)}."] if products else [], []
    sentences += [f"{slow.text}." for slow in environments.slow_products(records)]
    for comparison in runs.comparisons:
        tables += filled(comparison.name, [_row(comparison, entry) for entry in comparison.entries if entry.ok])
        by_size = comparison.by_size() or comparison.by_size(oversubscribed=True)
        completed = [completed for entries in by_size.values() if (completed := [entry for entry in entries if entry.ok])]
        sentences += [_sentence(comparison.name, of_size) for of_size in completed[-1:]]
    if all(record.energy_joules is None for record in records):
        sentences.append(f"Energy: {NOT_MEASURED}.")
    return Findings(sentences, tables)


def _sentence(name: str, of_size: Sequence[Entry]) -> str:
    startup = {entry.backend: startup_seconds(entry) for entry in of_size}
    memory = {entry.backend: mib for entry in of_size if (mib := peak_mib(entry)) is not None}
    return (
        f"{name}, {ranks_of(of_size[0].num_ranks)}: startup ({', '.join(STARTUP)}) takes {span(startup, '{:.1f} s')}; "
        f"peak memory per rank is {span(memory, '{:.0f} MiB') if memory else NOT_MEASURED}."
    )


def startup_seconds(entry: Entry) -> float:
    """Returns the seconds from launch to the timed part, without a stage that is not known."""
    return sum(present(entry.trimmed_mean(f"{stage}_seconds") for stage in STARTUP))


def peak_mib(entry: Entry) -> float | None:
    """Returns the trimmed mean of the peak memory per rank over the completed runs; None where it is not known."""
    return in_unit(entry.trimmed_mean("peak_memory_bytes"), MIB)


def _row(comparison: Comparison, entry: Entry) -> Cells:
    def in_units(column: str, unit: float) -> float | None:
        return in_unit(entry.trimmed_mean(column), unit)

    declaration = declared().get(file_of(entry.backend))
    gpu_bytes = [size for sizes in entry.values("gpu_memory_by_rank_peak_allocated_bytes").values() for size in sizes]
    return entry.cells | {
        "seconds per epoch": entry.epoch_seconds,
        "start-up (s)": startup_seconds(entry),
        # Images have no tokens.
        "tokens/s": entry.trimmed_mean("tokens_per_second"),
        "TFLOP/s per rank": in_units("flops_per_second_per_rank", TERA),
        "share of peak (%)": in_units("share_of_peak", 0.01),
        "peak memory per rank (MiB)": peak_mib(entry),
        # Of the rank with most.
        "peak GPU memory allocated (MiB)": in_unit(max(present(gpu_bytes), default=None), MIB),
        "state per rank (MiB)": in_units("state_bytes", MIB),
        "expected (MiB)": in_units("expected_state_bytes", MIB),
        "sent per step (MB)": in_units("sent_per_step_bytes", MB),
        "by formula (MB)": in_units("expected_sent_per_step_bytes", MB),
        # Of the first run that has counted them.
        "by collective (MB)": next((text for record in entry.ok if (text := volumes.describe_collectives(record))), None),
        "exposed share of a step (%)": step.exposed_percent(comparison, entry),
        "training": "exact" if entry.exact else "approximate",
        "change to the program": declaration and declaration.change,
        "energy (J)": entry.trimmed_mean("energy_joules"),
    }
